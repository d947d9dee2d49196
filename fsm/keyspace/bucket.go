package keyspace

import (
	"math/bits"

	"github.com/tidwall/btree"
)

// bucketSlots is the number of slots of a bucket. A bucket then has 1,008 bytes, in an allocation of 1,024.
const bucketSlots = 20

// bucket has the items whose hashes have the same first depth bits, in no order.
//
// A search compares one byte of each hash, eight at a time, and then usually reads only the right slot: see "Swiss
// tables" of Abseil.
//
// Invariant: tags has the lowest byte of the hash of each of the first n slots. All other slots are zero. If overflow
// is not nil, n is 0.
type bucket struct {
	stamp uint64 // of the directory that may change the bucket: see [directory]
	tags  [(bucketSlots + 7) / 8]uint64
	depth uint8
	n     uint8
	// overflow has the items, if they are too many for the slots, and their hashes too alike for a split. Clients can
	// choose such keys. A search then takes logarithmic time.
	overflow *btree.BTreeG[Item]
	slots    [bucketSlots]Item
}

const (
	lowBytes  = 0x0101010101010101
	highBytes = 0x8080808080808080
)

// matches returns the high bit of every byte of tags that equals the byte of pattern, and perhaps of bytes above such a
// byte.
func matches(tags, pattern uint64) uint64 {
	x := tags ^ pattern
	return (x - lowBytes) &^ x & highBytes
}

// find returns the index of the item of a key, or -1. Requires: overflow is nil.
func (b *bucket) find(hash uint64, key string) int {
	pattern := (hash & 0xff) * lowBytes
	for word, tags := range &b.tags {
		for m := matches(tags, pattern); m != 0; m &= m - 1 {
			i := word*8 + bits.TrailingZeros64(m)/8
			if i >= int(b.n) {
				return -1
			}
			if it := &b.slots[i]; it.Hash == hash && it.Key() == key {
				return i
			}
		}
	}
	return -1
}

// get returns the item of a key, or nil.
func (b *bucket) get(hash uint64, key string) *Item {
	if b.overflow != nil {
		if it, ok := b.overflow.Get(probe(hash, key)); ok {
			return &it
		}
		return nil
	}
	if i := b.find(hash, key); i >= 0 {
		return &b.slots[i]
	}
	return nil
}

func (b *bucket) full() bool { return b.n == bucketSlots }

func (b *bucket) len() int {
	if b.overflow != nil {
		return b.overflow.Len()
	}
	return int(b.n)
}

// add appends an item. Requires: there is a free slot, and no item of the same key.
func (b *bucket) add(it *Item) {
	b.slots[b.n] = *it
	b.tags[b.n/8] |= (it.Hash & 0xff) << (b.n % 8 * 8)
	b.n++
}

// drop removes slot i. The last slot moves there.
func (b *bucket) drop(i int) {
	b.n--
	last := &b.slots[b.n]
	b.tags[b.n/8] &^= 0xff << (b.n % 8 * 8)
	if i != int(b.n) {
		b.slots[i] = *last
		shift := i % 8 * 8
		b.tags[i/8] = b.tags[i/8]&^(0xff<<shift) | (last.Hash&0xff)<<shift
	}
	*last = Item{}
}

// clear empties the bucket. The stamp and the depth stay.
func (b *bucket) clear() { *b = bucket{stamp: b.stamp, depth: b.depth} }

// clone returns a copy with another stamp.
func (b *bucket) clone(stamp uint64) *bucket {
	c := *b
	c.stamp = stamp
	if b.overflow != nil {
		c.overflow = b.overflow.IsoCopy()
	}
	return &c
}

// spill moves the items from the slots to the overflow tree.
func (b *bucket) spill() {
	overflow := btree.NewBTreeGOptions(func(a, b Item) bool { return a.Before(&b) }, btree.Options{NoLocks: true})
	for i := range b.slots[:b.n] {
		overflow.Set(b.slots[i])
	}
	b.clear()
	b.overflow = overflow
}

// unspill moves the items back to the slots. Requires: they fit.
func (b *bucket) unspill() {
	overflow := b.overflow
	b.overflow = nil
	overflow.Scan(func(it Item) bool {
		b.add(&it)
		return true
	})
}

// ascend calls f with the items whose hash is at least from, in order, until f returns false. It returns the last
// result of f. f must not keep the pointer.
func (b *bucket) ascend(from uint64, f func(it *Item) bool) bool {
	more := true
	if b.overflow != nil {
		b.overflow.Ascend(probe(from, ""), func(it Item) bool {
			more = f(&it)
			return more
		})
		return more
	}
	var order [bucketSlots]uint8
	n := 0
	for i := range b.slots[:b.n] {
		if b.slots[i].Hash < from {
			continue
		}
		at := n
		for ; at > 0 && b.slots[i].Before(&b.slots[order[at-1]]); at-- {
			order[at] = order[at-1]
		}
		order[at] = uint8(i)
		n++
	}
	for _, i := range order[:n] {
		if !f(&b.slots[i]) {
			return false
		}
	}
	return true
}

// ascendDeadline calls f with items that may have this deadline: with those of a tree in order, until f returns false,
// and with all those of slots, in no order. It compares tags first, since each slot is in another cache line.
func (b *bucket) ascendDeadline(d deadline, f func(it *Item) bool) {
	if b.overflow != nil {
		b.overflow.Ascend(probe(d.hash&^classMask, ""), func(it Item) bool {
			return it.Hash <= d.hash|classMask && f(&it)
		})
		return
	}
	pattern := (d.hash & 0xff) * lowBytes
	for word, tags := range &b.tags {
		for m := matches(tags, pattern); m != 0; m &= m - 1 {
			i := word*8 + bits.TrailingZeros64(m)/8
			if i >= int(b.n) {
				return
			}
			if it := &b.slots[i]; it.DeadlineMillis == d.millis {
				f(it)
			}
		}
	}
}

// removeEnded removes the items that have ended at nowMillis.
func (b *bucket) removeEnded(nowMillis int64) {
	if b.overflow == nil {
		for i := int(b.n) - 1; i >= 0; i-- {
			if b.slots[i].Ended(nowMillis) {
				b.drop(i)
			}
		}
		return
	}
	var ended []Item
	b.overflow.Scan(func(it Item) bool {
		if it.Ended(nowMillis) {
			ended = append(ended, it)
		}
		return true
	})
	for _, it := range ended {
		b.overflow.Delete(it)
	}
}

func (b *bucket) hasEnded(nowMillis int64) (found bool) {
	b.ascend(0, func(it *Item) bool {
		found = it.Ended(nowMillis)
		return !found
	})
	return found
}

// probe is an item to search a tree with.
func probe(hash uint64, key string) Item {
	return Item{data: join(key, "", EncodingAuto), Hash: hash}
}
