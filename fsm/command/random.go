package command

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/zeebo/xxh3"

	"github.com/holdfast/holdfast/protocol"
)

// Random returns the next number of a sequence. In an entry all nodes have the same sequence; each read has its own.
func (c *Call) Random() uint64 {
	c.Draws++
	return HashNumbers(uint64(c.NowMillis), c.Keys.Versions, c.Seed, c.Draws)
}

// HashNumbers returns a hash of the numbers that is the same on every processor.
func HashNumbers(numbers ...uint64) uint64 {
	var b [64]byte
	for i, n := range numbers {
		binary.LittleEndian.PutUint64(b[8*i:], n)
	}
	return xxh3.Hash(b[:8*len(numbers)])
}

// Draw returns a random number below n.
func (c *Call) Draw(n int) int {
	high, _ := bits.Mul64(c.Random(), uint64(n))
	return int(high)
}

// DrawDistinct returns n different random numbers below size, in random order. Requires: n <= size.
func (c *Call) DrawDistinct(n, size int) []int {
	drawn := make([]int, n)
	// swapped has the numbers that a shuffle of all numbers would have moved so far, by position.
	swapped := make(map[int]int, n)
	at := func(i int) int {
		if moved, ok := swapped[i]; ok {
			return moved
		}
		return i
	}
	for i := range drawn {
		j := i + c.Draw(size-i)
		drawn[i] = at(j)
		swapped[j] = at(i)
	}
	return drawn
}

// Drawn returns the indexes of random elements for SRANDMEMBER and HRANDFIELD: at most count different indexes, or
// -count indexes with repetitions if count is negative.
func (c *Call) Drawn(count int64, size int) []int {
	if count >= 0 {
		return c.DrawDistinct(int(min(count, int64(size))), size)
	}
	places := make([]int, -count)
	for i := range places {
		places[i] = c.Draw(size)
	}
	return places
}

// ChargeDrawn charges for the elements that a command with a count returns.
func (c *Call) ChargeDrawn(count int64, v sized, returned int) (problem protocol.Value, ok bool) {
	n := min(count, int64(v.Len()))
	if count < 0 {
		n = min(-count, MaxElementsWork) // a larger n exceeds the bound in any case
	}
	return c.Charge(n * (SearchesIn(v, 1) + int64(returned)*ElementWork))
}

// DrawPairs parses the count of HRANDFIELD or ZRANDMEMBER, and the word that asks for pairs.
func (c *Call) DrawPairs(word string) (count int64, pairs bool, problem protocol.Value, ok bool) {
	if count, problem, ok = DrawCount(c.Args[2]); !ok {
		return 0, false, problem, false
	}
	pairs = len(c.Args) == 4 && IsWord(c.Args[3], word)
	switch {
	case len(c.Args) > 3 && !pairs:
		return 0, false, ErrSyntax, false
	case pairs && (count < -math.MaxInt64/2 || count > math.MaxInt64/2):
		return 0, false, protocol.Err("value is out of range"), false
	}
	return count, pairs, problem, true
}

// DrawCount parses the count of SRANDMEMBER and similar commands.
func DrawCount(word string) (count int64, problem protocol.Value, ok bool) {
	count, ok = protocol.ParseInt(word)
	switch {
	case !ok:
		return 0, ErrNotInteger, false
	case count == math.MinInt64:
		return 0, protocol.Err("value is out of range, value must between -9223372036854775807 and 9223372036854775807"),
			false
	}
	return count, problem, true
}
