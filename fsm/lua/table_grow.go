package lua

import (
	"math"
	"math/bits"
)

func floatBits(n float64) uint64 { return math.Float64bits(n) }

// census counts the integer keys of a table by size: in[i] counts the keys in (2^(i-1), 2^i].
type census struct {
	in    [maxArrayBits + 1]int
	total int // integer keys
}

func (c *census) count(key value) {
	if _, is := key.o.(numberTag); !is {
		return
	}
	if i := arrayIndex(key.n); i > 0 {
		c.in[bits.Len(uint(i-1))]++
		c.total++
	}
}

// arrayLen returns the largest n such that more than half of 1…n are in use, and the number of those
// keys.
func (c *census) arrayLen() (n, taken int) {
	sum := 0
	for i, size := 0, 1; i <= maxArrayBits && size/2 < c.total; i, size = i+1, size*2 {
		if c.in[i] > 0 {
			if sum += c.in[i]; sum > size/2 {
				n, taken = size, sum
			}
		}
		if sum == c.total {
			break
		}
	}
	return n, taken
}

// rehash makes room for key: it counts the entries, and divides them anew into array and hash.
func (t *table) rehash(l *state, key value) {
	l.charge(int64(len(t.array)+len(t.nodes))/4 + 1)
	var c census
	used := 0
	for low, size, i := 0, 1, 0; low < len(t.array); low, size, i = size, size*2, i+1 {
		for _, v := range t.array[low:min(size, len(t.array))] {
			if !v.isNil() {
				c.in[i]++
			}
		}
		c.total += c.in[i]
	}
	used += c.total
	for i := range t.nodes {
		if n := &t.nodes[i]; !n.val.isNil() {
			c.count(n.key)
			used++
		}
	}
	c.count(key)
	used++
	n, taken := c.arrayLen()
	t.resize(l, n, used-taken)
}

// resize gives t an array of n elements and a hash for at least hashLen entries.
func (t *table) resize(l *state, n, hashLen int) {
	oldNodes, oldArray := t.nodes, t.array
	if n > len(oldArray) {
		t.growArray(l, n)
		l.release(int64(len(oldArray)) * slotBytes)
	}
	t.makeNodes(l, hashLen)
	if n < len(oldArray) {
		t.array = oldArray[:n:n]
		for i := n; i < len(oldArray); i++ {
			if v := oldArray[i]; !v.isNil() {
				t.set(l, number(float64(i+1)), v)
			}
		}
	}
	for i := len(oldNodes) - 1; i >= 0; i-- {
		if old := &oldNodes[i]; !old.val.isNil() {
			t.set(l, old.key, old.val)
		}
	}
	l.release(int64(len(oldNodes)) * nodeBytes)
}

// growArray makes the array n long.
func (t *table) growArray(l *state, n int) {
	l.alloc(int64(n) * slotBytes)
	array := make([]value, n)
	copy(array, t.array)
	t.array = array
}

// resizeArray makes the array at least n long, for a constructor whose
// length has become known.
func (t *table) resizeArray(l *state, n int) {
	if n > len(t.array) {
		t.resize(l, n, len(t.nodes))
	}
}
