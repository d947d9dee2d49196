package fsm

import (
	"math"
	"math/bits"

	"github.com/holdfast/holdfast/protocol"
)

// draw is a random number below n.
func (c *call) draw(n int) int {
	high, _ := bits.Mul64(c.random(), uint64(n))
	return int(high)
}

// drawDistinct draws n different numbers below size, in random order. Requires: n <= size.
func (c *call) drawDistinct(n, size int) []int {
	drawn := make([]int, n)
	// swapped is what a shuffle of all numbers would have moved so far.
	swapped := make(map[int]int, n)
	at := func(i int) int {
		if moved, ok := swapped[i]; ok {
			return moved
		}
		return i
	}
	for i := range drawn {
		j := i + c.draw(size-i)
		drawn[i] = at(j)
		swapped[j] = at(i)
	}
	return drawn
}

// drawn are the places of count elements among size as SRANDMEMBER and HRANDFIELD mean a count: different
// ones, all at most, and with a negative count any.
func (c *call) drawn(count int64, size int) []int {
	if count >= 0 {
		return c.drawDistinct(int(min(count, int64(size))), size)
	}
	places := make([]int, -count)
	for i := range places {
		places[i] = c.draw(size)
	}
	return places
}

// chargeDrawn charges for the elements that a command returns by a count.
func (c *call) chargeDrawn(count int64, v sized, returned int) (problem protocol.Value, ok bool) {
	n := min(count, int64(v.Len()))
	if count < 0 {
		n = min(-count, maxElementsWork) // more is too much work in any case
	}
	return c.charge(n * (searchesIn(v, 1) + int64(returned)*elementWork))
}

// drawPairs reads the count of HRANDFIELD and ZRANDMEMBER, and the word that asks for pairs.
func (c *call) drawPairs(word string) (count int64, pairs bool, problem protocol.Value, ok bool) {
	if count, problem, ok = drawCount(c.args[2]); !ok {
		return 0, false, problem, false
	}
	pairs = len(c.args) == 4 && isWord(c.args[3], word)
	switch {
	case len(c.args) > 3 && !pairs:
		return 0, false, errSyntax, false
	case pairs && (count < -math.MaxInt64/2 || count > math.MaxInt64/2):
		return 0, false, protocol.Err("value is out of range"), false
	}
	return count, pairs, problem, true
}

// drawCount reads the count of SRANDMEMBER and the like.
func drawCount(word string) (count int64, problem protocol.Value, ok bool) {
	count, ok = protocol.ParseInt(word)
	switch {
	case !ok:
		return 0, errNotInteger, false
	case count == math.MinInt64:
		return 0, protocol.Err("value is out of range, value must between -9223372036854775807 and 9223372036854775807"),
			false
	}
	return count, problem, true
}
