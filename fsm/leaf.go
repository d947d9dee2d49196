package fsm

import (
	"math/bits"

	"github.com/tidwall/btree"
)

// leafSlots is how many items a leaf holds. With it a leaf is 1,008 bytes, of an
// allocation of 1,024.
const leafSlots = 20

// leaf holds the items whose hashes begin with the same depth bits, in no order.
//
// A lookup compares one byte of each hash, eight at a time, and touches then, as a
// rule, only the slot it finds: see "Swiss tables" of Abseil.
//
// Invariant: tags holds the lowest byte of the hash of each of the first n slots;
// all other slots are zero. If many is not nil, n is 0.
type leaf struct {
	stamp uint64 // of the keyspace that may change it: see [keyspace]
	tags  [(leafSlots + 7) / 8]uint64
	depth uint8
	n     uint8
	// many holds the items when they are too many and their hashes too alike to
	// part them: somebody chose the keys so. It is slower, but never slow.
	many  *btree.BTreeG[item]
	slots [leafSlots]item
}

const (
	lowBytes  = 0x0101010101010101
	highBytes = 0x8080808080808080
)

// find is the index of the item of a key, -1 if there is none. Requires: many is nil.
func (l *leaf) find(hash uint64, key string) int {
	pattern := (hash & 0xff) * lowBytes
	for word, tags := range &l.tags {
		x := tags ^ pattern
		// A high bit for every byte of x that is zero, and maybe for some above it.
		for m := (x - lowBytes) &^ x & highBytes; m != 0; m &= m - 1 {
			i := word*8 + bits.TrailingZeros64(m)/8
			if i >= int(l.n) {
				return -1
			}
			if it := &l.slots[i]; it.hash == hash && it.key() == key {
				return i
			}
		}
	}
	return -1
}

// get is the item of a key, nil if there is none.
func (l *leaf) get(hash uint64, key string) *item {
	if l.many != nil {
		if it, ok := l.many.Get(probe(hash, key)); ok {
			return &it
		}
		return nil
	}
	if i := l.find(hash, key); i >= 0 {
		return &l.slots[i]
	}
	return nil
}

func (l *leaf) full() bool { return l.n == leafSlots }

func (l *leaf) len() int {
	if l.many != nil {
		return l.many.Len()
	}
	return int(l.n)
}

// add appends it. Requires: there is room, and no item of its key.
func (l *leaf) add(it *item) {
	l.slots[l.n] = *it
	l.tags[l.n/8] |= (it.hash & 0xff) << (l.n % 8 * 8)
	l.n++
}

// drop takes out slot i; the last one takes its place.
func (l *leaf) drop(i int) {
	l.n--
	last := &l.slots[l.n]
	l.tags[l.n/8] &^= 0xff << (l.n % 8 * 8)
	if i != int(l.n) {
		l.slots[i] = *last
		shift := i % 8 * 8
		l.tags[i/8] = l.tags[i/8]&^(0xff<<shift) | (last.hash&0xff)<<shift
	}
	*last = item{}
}

// clear empties l but for what says where it stands.
func (l *leaf) clear() { *l = leaf{stamp: l.stamp, depth: l.depth} }

// clone is a copy that may be changed under another stamp.
func (l *leaf) clone(stamp uint64) *leaf {
	c := *l
	c.stamp = stamp
	if l.many != nil {
		c.many = l.many.IsoCopy()
	}
	return &c
}

// heap turns the slots into a tree.
func (l *leaf) heap() {
	many := btree.NewBTreeGOptions(func(a, b item) bool { return a.before(&b) }, btree.Options{NoLocks: true})
	for i := range l.slots[:l.n] {
		many.Set(l.slots[i])
	}
	l.clear()
	l.many = many
}

// unheap turns a tree that has become small into slots.
func (l *leaf) unheap() {
	many := l.many
	l.many = nil
	many.Scan(func(it item) bool {
		l.add(&it)
		return true
	})
}

// ascend calls f for the items whose hash is at least from, in order, until it
// returns false. f must not keep the pointer.
func (l *leaf) ascend(from uint64, f func(it *item) bool) bool {
	more := true
	if l.many != nil {
		l.many.Ascend(probe(from, ""), func(it item) bool {
			more = f(&it)
			return more
		})
		return more
	}
	var order [leafSlots]uint8
	n := 0
	for i := range l.slots[:l.n] {
		if l.slots[i].hash < from {
			continue
		}
		at := n
		for ; at > 0 && l.slots[i].before(&l.slots[order[at-1]]); at-- {
			order[at] = order[at-1]
		}
		order[at] = uint8(i)
		n++
	}
	for _, i := range order[:n] {
		if !f(&l.slots[i]) {
			return false
		}
	}
	return true
}

// ascendDue calls f for the items that may have a due, by what it says of their hash, until it
// returns false.
func (l *leaf) ascendDue(d due, f func(it *item) bool) {
	if l.many != nil {
		l.many.Ascend(probe(d.hash&^classMask, ""), func(it item) bool {
			return it.hash <= d.hash|classMask && f(&it)
		})
		return
	}
	for i := range l.slots[:l.n] {
		if it := &l.slots[i]; it.deadlineMillis == d.deadlineMillis && !f(it) {
			return
		}
	}
}

// removeDead takes out the items that are absent at nowMillis.
func (l *leaf) removeDead(nowMillis int64) {
	if l.many == nil {
		for i := int(l.n) - 1; i >= 0; i-- {
			if l.slots[i].dead(nowMillis) {
				l.drop(i)
			}
		}
		return
	}
	var dead []item
	l.many.Scan(func(it item) bool {
		if it.dead(nowMillis) {
			dead = append(dead, it)
		}
		return true
	})
	for _, it := range dead {
		l.many.Delete(it)
	}
}

func (l *leaf) hasDead(nowMillis int64) (found bool) {
	l.ascend(0, func(it *item) bool {
		found = it.dead(nowMillis)
		return !found
	})
	return found
}

// probe is what a tree is searched with.
func probe(hash uint64, key string) item {
	return item{data: key, hash: hash, keyLen: uint32(len(key))}
}
