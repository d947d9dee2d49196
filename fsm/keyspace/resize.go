package keyspace

import (
	"math/bits"
	"slices"
)

const (
	maxSegmentBits = 10
	// spareDepth bounds the effect of keys with similar hashes: a bucket that is deeper by this than buckets of that many
	// keys usually are is not split, but overflows.
	spareDepth = 4
)

// split splits the bucket of hash, or makes the room for that first. The caller repeats it until there is room.
// Requires: the bucket is owned, and full.
func (d *directory) split(hash uint64) {
	s, b := d.ownSegment(hash), d.bucketOf(hash)
	switch {
	case int(b.depth) >= min(bits.Len(uint(max(d.count, d.expected)))+spareDepth, 63):
		b.spill()
	case s.places(b) > 1:
		s.split(hash, b)
	case s.bits < maxSegmentBits:
		s.double()
	default:
		d.splitSegment(hash, s)
	}
}

// split splits a bucket by the next bit of the hashes.
func (s *segment) split(hash uint64, b *bucket) {
	bit := uint64(1) << (63 - b.depth)
	b.depth++
	high := &bucket{stamp: b.stamp, depth: b.depth}
	for i := int(b.n) - 1; i >= 0; i-- {
		if it := &b.slots[i]; it.Hash&bit != 0 {
			high.add(it)
			b.drop(i)
		}
	}
	s.set(hash|bit, high)
	if s.places(b) == 1 {
		s.single += 2
	}
}

func (s *segment) double() {
	buckets := make([]*bucket, 2*len(s.buckets))
	for i := range buckets {
		buckets[i] = s.buckets[i/2]
	}
	s.buckets, s.single = buckets, 0
	s.bits++
}

// halve removes every second place while no bucket needs it.
func (s *segment) halve() {
	for s.single == 0 {
		buckets := make([]*bucket, len(s.buckets)/2)
		for i := range buckets {
			buckets[i] = s.buckets[2*i]
		}
		s.buckets = buckets
		s.bits--
		s.countSingle()
	}
}

func (s *segment) countSingle() {
	s.single = 0
	for i, b := range s.buckets {
		if len(s.buckets) == 1 || b != s.buckets[i^1] {
			s.single++
		}
	}
}

func (d *directory) splitSegment(hash uint64, s *segment) {
	if len(d.top)>>s.depth == 1 {
		top := make([]*segment, 2*len(d.top))
		for i := range top {
			top[i] = d.top[i/2]
		}
		d.top, d.topStamp = top, d.stamp
		d.topShift--
	}
	middle := len(s.buckets) / 2
	low := &segment{stamp: d.stamp, depth: s.depth + 1, bits: s.bits - 1, buckets: slices.Clone(s.buckets[:middle])}
	high := &segment{stamp: d.stamp, depth: s.depth + 1, bits: s.bits - 1, buckets: slices.Clone(s.buckets[middle:])}
	bit := uint64(1) << (63 - s.depth)
	low.countSingle()
	high.countSingle()
	d.set(hash&^bit, low)
	d.set(hash|bit, high)
}

// shrink joins a bucket with its neighbours while they have few items. Requires: the bucket is owned, and is that of
// hash.
func (d *directory) shrink(hash uint64, b *bucket) {
	if b.overflow != nil && b.overflow.Len() <= bucketSlots/2 {
		b.unspill()
	}
	for b.len() <= bucketSlots/4 && b.depth > 0 {
		s := d.ownSegment(hash)
		if b.depth == s.depth && !d.joinSegments(hash, s) {
			return
		}
		if !d.segmentOf(hash).join(hash, b) { // b is deeper than its segment
			return
		}
	}
}

// join joins a bucket with its neighbour, if they have few items.
func (s *segment) join(hash uint64, b *bucket) bool {
	other := s.buckets[s.place(hash^1<<(64-b.depth))]
	if other.depth != b.depth || other.overflow != nil || other.n+b.n > bucketSlots/2 {
		return false
	}
	for i := range other.slots[:other.n] {
		b.add(&other.slots[i])
	}
	if s.places(b) == 1 {
		s.single -= 2
	}
	b.depth--
	s.set(hash, b)
	s.halve()
	return true
}

// joinSegments joins a segment with its neighbour, if each has a single bucket.
func (d *directory) joinSegments(hash uint64, s *segment) bool {
	other := d.segmentOf(hash ^ 1<<(64-s.depth))
	if other.depth != s.depth || other.bits != 0 {
		return false
	}
	joined := &segment{
		stamp: d.stamp, depth: s.depth - 1, bits: 1, buckets: []*bucket{s.buckets[0], other.buckets[0]},
		single: 2,
	}
	if hash&(1<<(64-s.depth)) != 0 {
		slices.Reverse(joined.buckets)
	}
	d.set(hash, joined)
	if joined.depth == 0 {
		d.top, d.topStamp, d.topShift = []*segment{joined}, d.stamp, 64
	}
	return true
}
