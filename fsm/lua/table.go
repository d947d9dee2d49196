package lua

import (
	"math"
	"math/bits"
)

// table is a Lua table. As in Lua 5.1, it has an array and a hash with chained scatter, and they grow by the same
// rules. Scripts can observe the rules in the length of a table with holes and in the order of pairs. Both are the same
// as in Redis, and depend only on the history of the table. (Keys that are tables or functions are ordered by identity,
// and not by address as in Redis.)
//
// Requires: the code that walks a table charges for the walk.
type table struct {
	array    []value
	nodes    []node // the length is a power of two, or 0
	free     int    // all nodes from here on have a key
	meta     *table
	id       uint32
	readonly bool
	// lacks has a bit for each event whose metamethod this table, as a metatable, is known not to have.
	lacks uint8
}

// node is a slot of the hash. Its key stays when the value becomes nil, so a traversal may remove entries.
type node struct {
	key, val value
	next     int32 // the distance to the next node of the chain, or 0 at its end
}

// The charges for memory.
const (
	tableBytes   = 128
	slotBytes    = 24
	nodeBytes    = 56
	stringBytes  = 40
	closureBytes = 64
	upvalueBytes = 56
)

// maxArrayBits is the logarithm of the maximal length of an array, as in Lua 5.1.
const maxArrayBits = 26

// newTable returns a table with an array of arrayLen elements and a hash for hashLen entries.
func (l *state) newTable(arrayLen, hashLen int) *table {
	l.alloc(tableBytes)
	t := &table{}
	if arrayLen > 0 {
		l.alloc(int64(arrayLen) * slotBytes)
		t.array = make([]value, arrayLen)
	}
	if hashLen > 0 {
		t.makeNodes(l, hashLen)
	}
	return t
}

func (t *table) makeNodes(l *state, n int) {
	t.nodes, t.free = nil, 0
	if n == 0 {
		return
	}
	size := 1 << bits.Len(uint(n-1))
	l.alloc(int64(size) * nodeBytes)
	t.nodes, t.free = make([]node, size), size
}

// mainPosition returns the index of the node in which the chain of key begins.
func (t *table) mainPosition(l *state, key value) int {
	switch k := key.o.(type) {
	case *str:
		return int(l.hashOf(k)) & (len(t.nodes) - 1)
	case numberTag:
		return t.numberPosition(key.n)
	case trueTag:
		return 1 & (len(t.nodes) - 1)
	case falseTag:
		return 0
	default:
		return int(l.identity(key) % uint32((len(t.nodes)-1)|1))
	}
}

func (t *table) numberPosition(n float64) int {
	if n == 0 {
		return 0 // for -0, too
	}
	b := floatBits(n)
	return int((uint32(b) + uint32(b>>32)) % uint32((len(t.nodes)-1)|1))
}

// arrayIndex returns n if it may be an index of an array, or 0.
func arrayIndex(n float64) int {
	if n >= 1 && n <= 1<<maxArrayBits {
		if i := int(n); float64(i) == n {
			return i
		}
	}
	return 0
}

// get returns t[key] without metamethods.
func (t *table) get(l *state, key value) value {
	switch k := key.o.(type) {
	case *str:
		return t.getStr(l, k)
	case numberTag:
		return t.getNum(l, key.n)
	case nil:
		return nilValue
	}
	if i := t.find(l, key); i >= 0 {
		return t.nodes[i].val
	}
	return nilValue
}

// getInt returns t[i].
func (t *table) getInt(l *state, i int) value {
	if uint(i-1) < uint(len(t.array)) {
		return t.array[i-1]
	}
	return t.getNum(l, float64(i))
}

func (t *table) getNum(l *state, n float64) value {
	if i := arrayIndex(n); uint(i-1) < uint(len(t.array)) {
		return t.array[i-1]
	}
	if i := t.findNum(l, n); i >= 0 {
		return t.nodes[i].val
	}
	return nilValue
}

// getStr returns t[key].
func (t *table) getStr(l *state, key *str) value {
	if i := t.findStr(l, key); i >= 0 {
		return t.nodes[i].val
	}
	return nilValue
}

// find returns the index of the node of key, or -1.
func (t *table) find(l *state, key value) int {
	switch k := key.o.(type) {
	case *str:
		return t.findStr(l, k)
	case numberTag:
		return t.findNum(l, key.n)
	}
	if len(t.nodes) == 0 {
		return -1
	}
	for i, hops := t.mainPosition(l, key), 0; ; hops++ {
		n := &t.nodes[i]
		if n.key.o == key.o {
			l.chargeHops(hops)
			return i
		}
		if n.next == 0 {
			l.chargeHops(hops)
			return -1
		}
		i += int(n.next)
	}
}

func (t *table) findStr(l *state, key *str) int {
	if len(t.nodes) == 0 {
		return -1
	}
	hash := l.hashOf(key)
	for i, hops := int(hash)&(len(t.nodes)-1), 0; ; hops++ {
		n := &t.nodes[i]
		if k, is := n.key.o.(*str); is && (k == key || l.hashOf(k) == hash && l.sameText(k.s, key.s)) {
			l.chargeHops(hops)
			return i
		}
		if n.next == 0 {
			l.chargeHops(hops)
			return -1
		}
		i += int(n.next)
	}
}

func (t *table) findNum(l *state, key float64) int {
	if len(t.nodes) == 0 {
		return -1
	}
	for i, hops := t.numberPosition(key), 0; ; hops++ {
		n := &t.nodes[i]
		if _, is := n.key.o.(numberTag); is && n.key.n == key {
			l.chargeHops(hops)
			return i
		}
		if n.next == 0 {
			l.chargeHops(hops)
			return -1
		}
		i += int(n.next)
	}
}

// set assigns t[key] = val, without metamethods.
//
// Requires: key is neither nil nor NaN, and t is not read-only.
func (t *table) set(l *state, key, val value) {
	*t.slot(l, key) = val
}

func (t *table) setInt(l *state, i int, val value) {
	if uint(i-1) < uint(len(t.array)) {
		t.array[i-1] = val
		return
	}
	t.set(l, number(float64(i)), val)
}

// existing returns the slot of t[key], or nil if there is none. It may return nil if the key is neither a string nor in
// the array.
func (t *table) existing(l *state, key *value) *value {
	switch k := key.o.(type) {
	case numberTag:
		if n := int(key.n); uint(n-1) < uint(len(t.array)) && float64(n) == key.n {
			return &t.array[n-1]
		}
	case *str:
		if i := t.findStr(l, k); i >= 0 {
			return &t.nodes[i].val
		}
	}
	return nil
}

// slot returns the slot of t[key], and creates it if there is none.
func (t *table) slot(l *state, key value) *value {
	t.lacks = 0
	if _, is := key.o.(numberTag); is {
		if i := arrayIndex(key.n); uint(i-1) < uint(len(t.array)) {
			return &t.array[i-1]
		}
	}
	if i := t.find(l, key); i >= 0 {
		return &t.nodes[i].val
	}
	return t.insert(l, key)
}

// insert creates the slot of a key that is not in t. If its main position is taken by a node that is not in its own
// main position, that node moves to a free node. Otherwise the new key gets the free node.
func (t *table) insert(l *state, key value) *value {
	if len(t.nodes) == 0 {
		t.rehash(l, key)
		return t.slot(l, key)
	}
	main := t.mainPosition(l, key)
	if !t.nodes[main].val.isNil() {
		free := t.takeFree(l)
		if free < 0 {
			t.rehash(l, key)
			return t.slot(l, key)
		}
		other := t.mainPosition(l, t.nodes[main].key)
		if other != main {
			t.moveNode(l, other, main, free)
		} else {
			if t.nodes[main].next != 0 {
				t.nodes[free].next = int32(main-free) + t.nodes[main].next
			}
			t.nodes[main].next = int32(free - main)
			main = free
		}
	}
	t.nodes[main].key = key
	return &t.nodes[main].val
}

// moveNode moves the node at from, which is in the chain of head, to the free node at to.
func (t *table) moveNode(l *state, head, from, to int) {
	hops := 0
	for head+int(t.nodes[head].next) != from {
		head += int(t.nodes[head].next)
		hops++
	}
	l.chargeHops(hops)
	t.nodes[head].next = int32(to - head)
	t.nodes[to] = t.nodes[from]
	if t.nodes[from].next != 0 {
		t.nodes[to].next = int32(from-to) + t.nodes[from].next
	}
	t.nodes[from] = node{}
}

// takeFree returns the index of a node without a key, or -1.
func (t *table) takeFree(l *state) int {
	start := t.free
	for t.free > 0 {
		t.free--
		if t.nodes[t.free].key.isNil() {
			l.chargeHops(start - t.free)
			return t.free
		}
	}
	l.chargeHops(start)
	return -1
}

// next returns the entry after key in the order of pairs, or the first entry if key is nil. After the last entry k is
// nil. ok is false if key is not in the table.
func (t *table) next(l *state, key value) (k, v value, ok bool) {
	i := 0
	if !key.isNil() {
		if i, ok = t.position(l, key); !ok {
			return nilValue, nilValue, false
		}
	}
	start := i
	for ; i < len(t.array); i++ {
		if !t.array[i].isNil() {
			l.chargeHops(i - start)
			return number(float64(i + 1)), t.array[i], true
		}
	}
	for i -= len(t.array); i < len(t.nodes); i++ {
		if n := &t.nodes[i]; !n.val.isNil() {
			l.chargeHops(i + len(t.array) - start)
			return n.key, n.val, true
		}
	}
	l.chargeHops(i + len(t.array) - start)
	return nilValue, nilValue, true
}

// position returns the number of slots up to and including that of key, in the order of pairs. It returns false if key
// is not in the table.
func (t *table) position(l *state, key value) (int, bool) {
	if _, is := key.o.(numberTag); is {
		if i := arrayIndex(key.n); uint(i-1) < uint(len(t.array)) {
			return i, true
		}
	}
	i := t.find(l, key)
	return len(t.array) + i + 1, i >= 0
}

// length is the operator #. Of several borders it returns the one that Lua 5.1 returns.
func (t *table) length(l *state) int {
	j := len(t.array)
	if j > 0 && t.array[j-1].isNil() {
		i := 0
		for j-i > 1 {
			if m := (i + j) / 2; t.array[m-1].isNil() {
				j = m
			} else {
				i = m
			}
		}
		return i
	}
	if len(t.nodes) == 0 {
		return j
	}
	return t.borderAfter(l, j)
}

// borderAfter searches a border in the hash after i. It doubles the index until it finds a nil, and then searches the
// interval.
func (t *table) borderAfter(l *state, i int) int {
	j := i + 1
	for !t.getInt(l, j).isNil() {
		i = j
		j *= 2
		if j > 1<<31-1 {
			return t.borderSlowly(l)
		}
	}
	for j-i > 1 {
		if m := (i + j) / 2; t.getInt(l, m).isNil() {
			j = m
		} else {
			i = m
		}
	}
	return i
}

// borderSlowly returns the first border. borderAfter needs it for tables that are built to mislead its search.
func (t *table) borderSlowly(l *state) int {
	i := 1
	for !t.getInt(l, i).isNil() {
		l.charge(1)
		i++
	}
	return i - 1
}

func floatBits(n float64) uint64 { return math.Float64bits(n) }

// census counts the integer keys of a table.
type census struct {
	in    [maxArrayBits + 1]int // in[i] is the number of keys in (2^(i-1), 2^i]
	total int
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

// arrayLen returns the largest power of two n such that more than half of the keys 1…n are in use, and their number.
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

// rehash resizes array and hash for the current entries and key.
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

// resize resizes the array to n elements and the hash to at least hashLen nodes.
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

// growArray resizes the array to n elements.
func (t *table) growArray(l *state, n int) {
	l.alloc(int64(n) * slotBytes)
	array := make([]value, n)
	copy(array, t.array)
	t.array = array
}

// resizeArray resizes the array to at least n elements, for a constructor.
func (t *table) resizeArray(l *state, n int) {
	if n > len(t.array) {
		t.resize(l, n, len(t.nodes))
	}
}
