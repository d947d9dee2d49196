package fsm

import (
	"math/bits"
	"slices"
)

// keyspace holds items in the order of (hash, key). It is a directory of leaves
// by the first bits of the hash that grows where leaves are full: extendible
// hashing (Fagin, Nievergelt, Pippenger, Strong 1979), in two levels, so that
// growing never copies more than a segment of 1,024 pointers or a thousandth of
// them all.
//
// It is copied in constant time. A part may be changed by the keyspace alone
// whose stamp it bears; others change a copy of it. A copy and its original go
// on with a stamp that is higher than that of any part which they share.
//
// Invariant: a segment's and a leaf's depth is how many first bits of the hash are
// the same for all that is in it; it stands in all places of the directory that
// begin with them. A part with the current stamp hangs on parts that have it too.
type keyspace struct {
	stamp    uint64
	topStamp uint64     // of the slice top
	top      []*segment // by the first bits
	topShift uint8      // 64 less the number of these bits
	count    int
	// expected is how many items are to come, in order of their hashes: what is
	// alike in the first of them is then no sign of ill will.
	expected int
}

// segment is the leaves below one place, or some places, of the top.
type segment struct {
	stamp  uint64
	depth  uint8
	bits   uint8
	leaves []*leaf // by the bits after the first depth; 1<<bits
	// single counts the leaves that have one place only. Without any the segment
	// can be halved.
	single int
}

const (
	maxSegmentBits = 10
	// spareDepth bounds what somebody can do who knows keys with like hashes: no
	// leaf is parted that lies so much deeper than leaves are with that many keys.
	spareDepth = 4
)

func newKeyspace() keyspace {
	s := &segment{leaves: []*leaf{{}}, single: 1}
	return keyspace{top: []*segment{s}, topShift: 64}
}

// copy is a keyspace that shares all parts with k; what either writes later the
// other does not see.
func (k *keyspace) copy() keyspace {
	k.stamp++
	return *k
}

func (k *keyspace) len() int { return k.count }

func (k *keyspace) segmentOf(hash uint64) *segment { return k.top[hash>>k.topShift] }

// place is where hash stands among the leaves.
func (s *segment) place(hash uint64) int { return int(hash << s.depth >> (64 - s.bits)) }

func (k *keyspace) leafOf(hash uint64) *leaf {
	s := k.segmentOf(hash)
	return s.leaves[s.place(hash)]
}

// find is the item of a key, nil if there is none. The pointer is good until the
// next change.
func (k *keyspace) find(hash uint64, key string) *item { return k.leafOf(hash).get(hash, key) }

// put stores it, and returns what stood in its place.
func (k *keyspace) put(it *item) (prev item, replaced bool) {
	for {
		l := k.own(it.hash)
		if l.many != nil {
			prev, replaced = l.many.Set(*it)
		} else if i := l.find(it.hash, it.key()); i >= 0 {
			prev, replaced = l.slots[i], true
			l.slots[i] = *it
		} else if !l.full() {
			l.add(it)
		} else {
			k.split(it.hash)
			continue
		}
		if !replaced {
			k.count++
		}
		return prev, replaced
	}
}

// remove takes out the item of a key, and returns it.
func (k *keyspace) remove(hash uint64, key string) (prev item, ok bool) {
	l := k.own(hash)
	if l.many != nil {
		prev, ok = l.many.Delete(probe(hash, key))
	} else if i := l.find(hash, key); i >= 0 {
		prev, ok = l.slots[i], true
		l.drop(i)
	}
	if ok {
		k.count--
		k.shrink(hash, l)
	}
	return prev, ok
}

// ending is an item with this due, nil if there is none.
func (k *keyspace) ending(d due) (found *item) {
	k.leafOf(d.hash).ascendDue(d, func(it *item) bool {
		if it.due() == d {
			found = it
		}
		return found == nil
	})
	return found
}

// ascend calls f for the items whose hash is at least from, in order, until it
// returns false. f must not keep the pointer.
func (k *keyspace) ascend(from uint64, f func(it *item) bool) {
	for {
		l := k.leafOf(from)
		if !l.ascend(from, f) {
			return
		}
		if from = l.end(from); from == 0 {
			return
		}
	}
}

// end is the first hash after those of l, to which hash belongs; 0 after the last.
func (l *leaf) end(hash uint64) uint64 { return hash | (1<<(64-l.depth) - 1) + 1 }

// removeDead takes out all items that are absent at nowMillis.
func (k *keyspace) removeDead(nowMillis int64) {
	for from := uint64(0); ; {
		l := k.leafOf(from)
		end := l.end(from)
		if l.hasDead(nowMillis) {
			l = k.own(from)
			before := l.len()
			l.removeDead(nowMillis)
			k.count -= before - l.len()
			k.shrink(from, l)
		}
		if from = end; from == 0 {
			return
		}
	}
}

// own is the leaf of hash, which may be changed.
func (k *keyspace) own(hash uint64) *leaf {
	l := k.leafOf(hash)
	if l.stamp == k.stamp {
		return l
	}
	s := k.ownSegment(hash)
	l = l.clone(k.stamp)
	s.set(hash, l)
	return l
}

// ownSegment is the segment of hash, which may be changed.
func (k *keyspace) ownSegment(hash uint64) *segment {
	s := k.segmentOf(hash)
	if s.stamp == k.stamp {
		return s
	}
	c := *s
	c.stamp, c.leaves = k.stamp, slices.Clone(s.leaves)
	k.set(hash, &c)
	return &c
}

// set puts s, whose hashes begin as hash does, in its places.
func (k *keyspace) set(hash uint64, s *segment) {
	if k.topStamp != k.stamp {
		k.top, k.topStamp = slices.Clone(k.top), k.stamp
	}
	span := len(k.top) >> s.depth
	from := int(hash>>k.topShift) &^ (span - 1)
	for i := range k.top[from : from+span] {
		k.top[from+i] = s
	}
}

// set puts l, whose hashes begin as hash does, in its places.
func (s *segment) set(hash uint64, l *leaf) {
	span := s.span(l)
	from := s.place(hash) &^ (span - 1)
	for i := range s.leaves[from : from+span] {
		s.leaves[from+i] = l
	}
}

// span is in how many places l stands.
func (s *segment) span(l *leaf) int { return len(s.leaves) >> (l.depth - s.depth) }

// split parts the leaf of hash, or makes the room that this needs first: to be
// called until there is room. Requires: the leaf is owned, and full.
func (k *keyspace) split(hash uint64) {
	s, l := k.ownSegment(hash), k.leafOf(hash)
	switch {
	case int(l.depth) >= min(bits.Len(uint(max(k.count, k.expected)))+spareDepth, 63):
		l.heap()
	case s.span(l) > 1:
		s.split(hash, l)
	case s.bits < maxSegmentBits:
		s.double()
	default:
		k.splitSegment(hash, s)
	}
}

// split parts l by the next bit of the hashes.
func (s *segment) split(hash uint64, l *leaf) {
	bit := uint64(1) << (63 - l.depth)
	l.depth++
	high := &leaf{stamp: l.stamp, depth: l.depth}
	for i := int(l.n) - 1; i >= 0; i-- {
		if it := &l.slots[i]; it.hash&bit != 0 {
			high.add(it)
			l.drop(i)
		}
	}
	s.set(hash|bit, high)
	if s.span(l) == 1 {
		s.single += 2
	}
}

func (s *segment) double() {
	leaves := make([]*leaf, 2*len(s.leaves))
	for i := range leaves {
		leaves[i] = s.leaves[i/2]
	}
	s.leaves, s.single = leaves, 0
	s.bits++
}

// halve takes out every second place while no leaf needs it.
func (s *segment) halve() {
	for s.single == 0 {
		leaves := make([]*leaf, len(s.leaves)/2)
		for i := range leaves {
			leaves[i] = s.leaves[2*i]
		}
		s.leaves = leaves
		s.bits--
		s.countSingle()
	}
}

func (s *segment) countSingle() {
	s.single = 0
	for i, l := range s.leaves {
		if len(s.leaves) == 1 || l != s.leaves[i^1] {
			s.single++
		}
	}
}

func (k *keyspace) splitSegment(hash uint64, s *segment) {
	if len(k.top)>>s.depth == 1 {
		top := make([]*segment, 2*len(k.top))
		for i := range top {
			top[i] = k.top[i/2]
		}
		k.top, k.topStamp = top, k.stamp
		k.topShift--
	}
	middle := len(s.leaves) / 2
	low := &segment{stamp: k.stamp, depth: s.depth + 1, bits: s.bits - 1, leaves: slices.Clone(s.leaves[:middle])}
	high := &segment{stamp: k.stamp, depth: s.depth + 1, bits: s.bits - 1, leaves: slices.Clone(s.leaves[middle:])}
	bit := uint64(1) << (63 - s.depth)
	low.countSingle()
	high.countSingle()
	k.set(hash&^bit, low)
	k.set(hash|bit, high)
}

// shrink joins the leaf of hash with its neighbours while they are few. Requires:
// it is l, which is owned.
func (k *keyspace) shrink(hash uint64, l *leaf) {
	if l.many != nil && l.many.Len() <= leafSlots/2 {
		l.unheap()
	}
	for l.len() <= leafSlots/4 && l.depth > 0 {
		s := k.ownSegment(hash)
		if l.depth == s.depth && !k.joinSegments(hash, s) {
			return
		}
		s = k.segmentOf(hash)
		if l.depth == s.depth || !s.join(hash, l) {
			return
		}
	}
}

// join makes one leaf of l and its neighbour, if they are few.
func (s *segment) join(hash uint64, l *leaf) bool {
	other := s.leaves[s.place(hash^1<<(64-l.depth))]
	if other.depth != l.depth || other.many != nil || other.n+l.n > leafSlots/2 {
		return false
	}
	for i := range other.slots[:other.n] {
		l.add(&other.slots[i])
	}
	if s.span(l) == 1 {
		s.single -= 2
	}
	l.depth--
	s.set(hash, l)
	s.halve()
	return true
}

// joinSegments makes one segment of s and its neighbour, if there is but one leaf in each.
func (k *keyspace) joinSegments(hash uint64, s *segment) bool {
	other := k.segmentOf(hash ^ 1<<(64-s.depth))
	if other.depth != s.depth || other.bits != 0 {
		return false
	}
	joined := &segment{stamp: k.stamp, depth: s.depth - 1, bits: 1, leaves: []*leaf{s.leaves[0], other.leaves[0]}, single: 2}
	if hash&(1<<(64-s.depth)) != 0 {
		slices.Reverse(joined.leaves)
	}
	k.set(hash, joined)
	if joined.depth == 0 {
		k.top, k.topStamp, k.topShift = []*segment{joined}, k.stamp, 64
	}
	return true
}
