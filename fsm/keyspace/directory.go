package keyspace

import "slices"

// directory has items in the order of (hash, key). The first bits of the hash select a segment in the top, and the next
// bits a bucket: extendible hashing (Fagin, Nievergelt, Pippenger, Strong 1979) in two levels. Growth copies at most a
// segment of 1,024 pointers, or the top, which has a thousandth of all pointers.
//
// A directory is copied in constant time. It changes the top, a segment or a bucket in place only if the part has its
// stamp, and otherwise changes a copy of the part. copy raises the stamps of both directories above those of all shared
// parts.
//
// Invariants: the depth of a segment or bucket is the number of first bits that all its hashes share, and all places
// that begin with these bits refer to it. A part with the current stamp is reached only through parts with that stamp.
type directory struct {
	stamp    uint64
	topStamp uint64     // of the slice top
	top      []*segment // by the first bits
	topShift uint8      // 64 less the number of these bits
	count    int
	// expected is the number of items that will be added in the order of their hashes. The hashes of the first of them
	// begin alike, which must then not cause an overflow.
	expected int
}

// segment has the buckets below one place of the top, or below several places.
type segment struct {
	stamp   uint64
	depth   uint8
	bits    uint8
	buckets []*bucket // by the bits after the first depth; 1<<bits
	// single counts the buckets that have only one place. If it is 0, the segment can be halved.
	single int
}

func newDirectory() directory {
	s := &segment{buckets: []*bucket{{}}, single: 1}
	return directory{top: []*segment{s}, topShift: 64}
}

// copy returns a directory that shares all parts with d. Later changes of either do not affect the other.
func (d *directory) copy() directory {
	d.stamp++
	return *d
}

func (d *directory) segmentOf(hash uint64) *segment { return d.top[hash>>d.topShift] }

// place returns the index of a hash among the buckets.
func (s *segment) place(hash uint64) int { return int(hash << s.depth >> (64 - s.bits)) }

func (d *directory) bucketOf(hash uint64) *bucket {
	s := d.segmentOf(hash)
	return s.buckets[s.place(hash)]
}

// find returns the item of a key, or nil. The pointer is valid until the next change.
func (d *directory) find(hash uint64, key string) *Item { return d.bucketOf(hash).get(hash, key) }

// put stores an item, and returns the former item of the key.
func (d *directory) put(it *Item) (prev Item, replaced bool) {
	for {
		b := d.own(it.Hash)
		if b.overflow != nil {
			prev, replaced = b.overflow.Set(*it)
		} else if i := b.find(it.Hash, it.Key()); i >= 0 {
			prev, replaced = b.slots[i], true
			b.slots[i] = *it
		} else if !b.full() {
			b.add(it)
		} else {
			d.split(it.Hash)
			continue
		}
		if !replaced {
			d.count++
		}
		return prev, replaced
	}
}

// remove removes the item of a key, and returns it.
func (d *directory) remove(hash uint64, key string) (prev Item, ok bool) {
	b := d.own(hash)
	if b.overflow != nil {
		prev, ok = b.overflow.Delete(probe(hash, key))
	} else if i := b.find(hash, key); i >= 0 {
		prev, ok = b.slots[i], true
		b.drop(i)
	}
	if ok {
		d.count--
		d.shrink(hash, b)
	}
	return prev, ok
}

// withDeadline returns the first item with this deadline, or nil. Items with similar hashes may have the same.
func (d *directory) withDeadline(want deadline) (found *Item) {
	b := d.bucketOf(want.hash)
	b.ascendDeadline(want, func(it *Item) bool {
		if it.deadline() == want && (found == nil || it.Before(found)) {
			found = it
		}
		return found == nil
	})
	return found
}

// ascend calls f with the items whose hash is at least from, in order, until f returns false. f must not keep the
// pointer.
func (d *directory) ascend(from uint64, f func(it *Item) bool) {
	for {
		b := d.bucketOf(from)
		if !b.ascend(from, f) {
			return
		}
		if from = b.end(from); from == 0 {
			return
		}
	}
}

// end returns the first hash after the bucket of hash, or 0 for the last bucket.
func (b *bucket) end(hash uint64) uint64 { return hash | (1<<(64-b.depth) - 1) + 1 }

// removeEnded removes all items that have ended at nowMillis.
func (d *directory) removeEnded(nowMillis int64) {
	for from := uint64(0); ; {
		b := d.bucketOf(from)
		end := b.end(from)
		if b.hasEnded(nowMillis) {
			b = d.own(from)
			before := b.len()
			b.removeEnded(nowMillis)
			d.count -= before - b.len()
			d.shrink(from, b)
		}
		if from = end; from == 0 {
			return
		}
	}
}

// own returns the bucket of hash for a change, as a copy if it is shared.
func (d *directory) own(hash uint64) *bucket {
	b := d.bucketOf(hash)
	if b.stamp == d.stamp {
		return b
	}
	s := d.ownSegment(hash)
	b = b.clone(d.stamp)
	s.set(hash, b)
	return b
}

// ownSegment returns the segment of hash for a change, as a copy if it is shared.
func (d *directory) ownSegment(hash uint64) *segment {
	s := d.segmentOf(hash)
	if s.stamp == d.stamp {
		return s
	}
	c := *s
	c.stamp, c.buckets = d.stamp, slices.Clone(s.buckets)
	d.set(hash, &c)
	return &c
}

// set stores a segment in its places. hash is any hash of the segment.
func (d *directory) set(hash uint64, s *segment) {
	if d.topStamp != d.stamp {
		d.top, d.topStamp = slices.Clone(d.top), d.stamp
	}
	n := len(d.top) >> s.depth
	from := int(hash>>d.topShift) &^ (n - 1)
	for i := range d.top[from : from+n] {
		d.top[from+i] = s
	}
}

// set stores a bucket in its places. hash is any hash of the bucket.
func (s *segment) set(hash uint64, b *bucket) {
	n := s.places(b)
	from := s.place(hash) &^ (n - 1)
	for i := range s.buckets[from : from+n] {
		s.buckets[from+i] = b
	}
}

// places returns the number of places of a bucket.
func (s *segment) places(b *bucket) int { return len(s.buckets) >> (b.depth - s.depth) }
