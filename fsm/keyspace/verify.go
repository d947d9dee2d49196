package keyspace

import (
	"cmp"
	"fmt"
	"slices"
)

// Verify returns an error if an invariant is broken, or if a count is wrong.
func (k *Keyspace) Verify() error {
	if err := verifyDirectory(&k.items); err != nil {
		return err
	}
	if err := verifyDeadlines(&k.deadlines); err != nil {
		return err
	}
	var want []deadline
	bytes, marks := int64(0), 0
	var counted Keyspace
	k.items.ascend(0, func(it *Item) bool {
		if it.DeadlineMillis != Never {
			want = append(want, it.deadline())
		}
		bytes += k.countOf(it, it.class())
		if it.IsMarked() {
			marks++
		}
		counted.countUsage(it, it.class(), 1)
		return true
	})
	if bytes != k.bytes {
		return fmt.Errorf("items of %d bytes are counted as %d", bytes, k.bytes)
	}
	if marks != k.Marks() {
		return fmt.Errorf("%d marks are counted as %d", marks, k.Marks())
	}
	for account := range max(len(k.usage), len(counted.usage)) {
		if is, was := counted.Usage(account), k.Usage(account); is != was {
			return fmt.Errorf("account %d with %+v is counted as %+v", account, is, was)
		}
	}
	slices.SortFunc(want, compareDeadlines)
	if got := listed(&k.deadlines); !slices.Equal(want, got) {
		return fmt.Errorf("deadlines are %v, the items' deadlines %v", got, want)
	}
	return nil
}

// verifyDirectory verifies a directory.
func verifyDirectory(d *directory) error {
	if len(d.top) != 1<<(64-d.topShift) {
		return fmt.Errorf("the top has %d places and shift %d", len(d.top), d.topShift)
	}
	count := 0
	for i := 0; i < len(d.top); i += len(d.top) >> d.top[i].depth {
		s := d.top[i]
		if span := len(d.top) >> s.depth; i%span != 0 || slices.ContainsFunc(d.top[i:i+span], func(t *segment) bool {
			return t != s
		}) {
			return fmt.Errorf("a segment of depth %d at %d of %d stands wrong", s.depth, i, len(d.top))
		}
		if s.stamp > d.stamp || s.stamp == d.stamp && d.topStamp != d.stamp && d.stamp != 0 {
			return fmt.Errorf("a segment has stamp %d of %d", s.stamp, d.stamp)
		}
		prefix := uint64(i) << (d.topShift & 63)
		n, err := verifySegment(s, prefix)
		if err != nil {
			return err
		}
		count += n
	}
	if count != d.count {
		return fmt.Errorf("%d items, counted as %d", count, d.count)
	}
	return nil
}

func verifySegment(s *segment, prefix uint64) (count int, err error) {
	if len(s.buckets) != 1<<s.bits || s.bits > maxSegmentBits {
		return 0, fmt.Errorf("a segment has %d places and %d bits", len(s.buckets), s.bits)
	}
	single := 0
	for i := 0; i < len(s.buckets); i += s.places(s.buckets[i]) {
		b := s.buckets[i]
		span := s.places(b)
		if span == 1 {
			single++
		}
		if b.depth < s.depth || span == 0 || i%span != 0 || slices.ContainsFunc(s.buckets[i:i+span], func(m *bucket) bool {
			return m != b
		}) {
			return 0, fmt.Errorf("a bucket of depth %d at %d of %d stands wrong", b.depth, i, len(s.buckets))
		}
		if b.stamp > s.stamp {
			return 0, fmt.Errorf("a bucket has stamp %d, its segment %d", b.stamp, s.stamp)
		}
		if err := verifyBucket(b, prefix|uint64(i)<<(64-s.bits)>>s.depth); err != nil {
			return 0, err
		}
		count += b.len()
	}
	if single != s.single {
		return 0, fmt.Errorf("%d buckets have one place, counted as %d", single, s.single)
	}
	return count, nil
}

func verifyBucket(b *bucket, prefix uint64) (err error) {
	if b.overflow != nil && (b.n != 0 || b.overflow.Len() <= bucketSlots/4) {
		return fmt.Errorf("a bucket has %d items in slots, %d in a tree", b.n, b.overflow.Len())
	}
	for i := range b.slots {
		it, tag := &b.slots[i], byte(b.tags[i/8]>>(i%8*8))
		if i >= int(b.n) && (*it != Item{} || tag != 0) {
			return fmt.Errorf("slot %d of %d is not empty", i, b.n)
		}
		if i < int(b.n) && tag != byte(it.Hash) {
			return fmt.Errorf("slot %d has tag %x, hash %x", i, tag, it.Hash)
		}
	}
	var previous *Item
	b.ascend(0, func(it *Item) bool {
		switch {
		case it.Hash>>(63-b.depth)>>1 != prefix>>(63-b.depth)>>1:
			err = fmt.Errorf("hash %x is in the bucket of %x with depth %d", it.Hash, prefix, b.depth)
		case previous != nil && !previous.Before(it):
			err = fmt.Errorf("key %q is out of order", it.Key())
		}
		copied := *it
		previous = &copied
		return err == nil
	})
	return err
}

// listed returns all deadlines of a deadlineIndex, in order.
func listed(c *deadlineIndex) (all []deadline) {
	for _, ch := range c.chunks {
		for i := range ch.blocks {
			all = append(all, ch.blocks[i].deadlines[:ch.blocks[i].n]...)
		}
	}
	return all
}

func compareDeadlines(a, b deadline) int {
	return cmp.Or(cmp.Compare(a.millis, b.millis), cmp.Compare(a.hash, b.hash))
}

// verifyDeadlines verifies a deadlineIndex.
func verifyDeadlines(c *deadlineIndex) error {
	var lows []deadline
	count := 0
	for _, ch := range c.chunks {
		inChunk, bytes := 0, int64(0)
		for i := range ch.blocks {
			p := &ch.blocks[i]
			if p.n == 0 {
				return fmt.Errorf("block %d of %d is empty", i, len(ch.blocks))
			}
			if p.deadlines[0].before(p.low) {
				return fmt.Errorf("a block begins with %v before its low, %v", p.deadlines[0], p.low)
			}
			if n := len(lows); n > 0 && p.low.before(lows[n-1]) {
				return fmt.Errorf("blocks are out of order")
			}
			lows = append(lows, p.low)
			inChunk += p.n
			bytes += p.bytes
			if sum := sumBytes(p.deadlines[:p.n]); sum != p.bytes {
				return fmt.Errorf("a block of %d bytes is counted as %d", sum, p.bytes)
			}
		}
		if bytes != ch.bytes {
			return fmt.Errorf("a chunk of %d bytes is counted as %d", bytes, ch.bytes)
		}
		if inChunk == 0 || inChunk != ch.count {
			return fmt.Errorf("a chunk of %d is counted as %d", inChunk, ch.count)
		}
		count += inChunk
	}
	if count != c.count {
		return fmt.Errorf("%d deadlines are counted as %d", count, c.count)
	}
	if !slices.IsSortedFunc(listed(c), compareDeadlines) {
		return fmt.Errorf("deadlines are out of order")
	}
	return nil
}
