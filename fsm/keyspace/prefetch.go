package keyspace

import "math/bits"

// In a large keyspace a search mostly waits for memory: bucket, slot and string, one after another. A prefetch for
// several keys waits for all of them together. It is a hint, and has no other effect.
const (
	// MaxPrefetch bounds the hashes of a Prefetch.
	MaxPrefetch = 32
	// prefetchFrom is the number of items that exceeds the caches near the processor.
	prefetchFrom = 1 << 14
)

// Large reports whether Prefetch helps: the keyspace exceeds the processor's caches.
func (k *Keyspace) Large() bool { return k.items.count >= prefetchFrom }

// Prefetch reads the memory that [Keyspace.Find] will read for these hashes, at most [MaxPrefetch].
func (k *Keyspace) Prefetch(hashes []uint64) { k.items.touch(hashes) }

// prefetchEnded reads the memory that the next steps of a sweep will read.
func (k *Keyspace) prefetchEnded(nowMillis int64) {
	if !k.Large() {
		return
	}
	var hashes [MaxPrefetch]uint64
	n := k.deadlines.hashesBefore(nowMillis, hashes[:])
	k.Prefetch(hashes[:n])
}

// touch does each step of a search for all hashes before the next step.
//
//go:noinline
func (d *directory) touch(hashes []uint64) (sum uint64) {
	var buckets [MaxPrefetch]*bucket
	var slots [MaxPrefetch]uint8
	for i, hash := range hashes {
		buckets[i] = d.bucketOf(hash)
	}
	for i, hash := range hashes {
		slots[i] = buckets[i].likelySlot(hash)
	}
	for i := range hashes {
		it := &buckets[i].slots[slots[i]]
		sum += uint64(len(it.data)) + it.stamp
	}
	for i := range hashes {
		it := &buckets[i].slots[slots[i]]
		if it.data != "" {
			sum += uint64(it.data[0])
		}
		if it.object != nil {
			sum += it.object.generation
		}
	}
	return sum
}

// likelySlot returns the first slot with the tag of hash or, without one, the next free slot.
func (b *bucket) likelySlot(hash uint64) uint8 {
	pattern := (hash & 0xff) * lowBytes
	for word, tags := range &b.tags {
		if m := matches(tags, pattern); m != 0 {
			return min(uint8(word*8+bits.TrailingZeros64(m)/8), b.n, bucketSlots-1)
		}
	}
	return min(b.n, bucketSlots-1)
}
