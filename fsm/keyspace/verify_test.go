package keyspace

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVerify: the check finds what contradicts something else.
func TestVerify(t *testing.T) {
	for want, damage := range map[string]func(k *Keyspace){
		"counted as 99":           func(k *Keyspace) { k.items.count = 99 },
		"are counted as":          func(k *Keyspace) { k.bytes++ },
		"account 2 with":          func(k *Keyspace) { k.usage = make([]Usage, 3); k.usage[2].Keys = 1 },
		"marks are counted":       func(k *Keyspace) { k.marks++ },
		"the items' deadlines":    func(k *Keyspace) { k.deadlines.remove(k.Find(Hash("k7"), "k7").deadline()) },
		"deadlines are counted":   func(k *Keyspace) { k.deadlines.count++ },
		"a chunk of":              func(k *Keyspace) { k.deadlines.chunks[0].bytes++ },
		"is in the bucket of":     func(k *Keyspace) { k.Find(Hash("k7"), "k7").Hash ^= 1 << 63 },
		"has tag":                 func(k *Keyspace) { k.Find(Hash("k7"), "k7").Hash ^= 1 },
		"of depth 40":             func(k *Keyspace) { k.items.top[0].buckets[0].depth = 40 },
		"buckets have one place,": func(k *Keyspace) { k.items.top[0].single++ },
		"the top has":             func(k *Keyspace) { k.items.topShift = 60 },
		"a segment of depth 0": func(k *Keyspace) {
			other := *k.items.top[0]
			k.items.top, k.items.topShift = append(k.items.top, &other), 63
		},
		"stands wrong": func(k *Keyspace) { // of the two places of a bucket one is another's
			s := k.items.top[0]
			s.double()
			s.buckets[1] = s.buckets[0].clone(0)
		},
		"a segment of depth 1 at 1": func(k *Keyspace) { // two places that do not begin with one bit
			at := func(depth uint8) *segment {
				return &segment{depth: depth, buckets: []*bucket{{depth: depth}}, single: 1}
			}
			wrong := at(1)
			k.items.top, k.items.topShift = []*segment{at(2), wrong, wrong, at(2)}, 62
		},
		"a bucket of depth 1 at 1": func(k *Keyspace) {
			wrong := &bucket{depth: 1}
			k.items.top[0] = &segment{bits: 2, buckets: []*bucket{{depth: 2}, wrong, wrong, {depth: 2}}, single: 2}
		},
		"a segment has stamp 9 of 9": func(k *Keyspace) { k.items.stamp, k.items.top[0].stamp = 9, 9 },
		"a segment has stamp":        func(k *Keyspace) { k.items.top[0].stamp = 9 },
		"a bucket has stamp":         func(k *Keyspace) { k.items.top[0].buckets[0].stamp = 9 },
		"and 11 bits": func(k *Keyspace) {
			for k.items.top[0].bits <= maxSegmentBits {
				k.items.top[0].double()
			}
		},
		"places and 3 bits": func(k *Keyspace) { k.items.top[0].bits = 3 },
		"items in slots": func(k *Keyspace) {
			b := k.items.top[0].buckets[0]
			one := b.slots[0]
			b.spill()
			b.add(&one)
		},
		"in a tree": func(k *Keyspace) {
			b := k.items.top[0].buckets[0]
			for b.spill(); b.overflow.Len() > 1; {
				b.overflow.PopMin()
			}
		},
		" is not empty":        func(k *Keyspace) { b := k.items.top[0].buckets[0]; b.tags[b.n/8] |= 1 << (b.n % 8 * 8) },
		"a bucket has stamp 5": func(k *Keyspace) { k.items.stamp, k.items.top[0].buckets[0].stamp = 9, 5 },
		"is not empty":         func(k *Keyspace) { b := k.items.top[0].buckets[0]; b.slots[b.n].stamp = 1 },
		"is out of order": func(k *Keyspace) {
			b := k.items.top[0].buckets[0]
			b.slots[1], b.tags[0] = b.slots[0], b.tags[0]&^0xff00|b.tags[0]&0xff<<8
		},
		"block 1 of":               func(k *Keyspace) { k.deadlines.chunks[0].blocks[1].n = 0 },
		"before its low":           func(k *Keyspace) { k.deadlines.chunks[0].blocks[1].low.millis += 3 },
		"blocks are out of order":  func(k *Keyspace) { k.deadlines.chunks[0].blocks[1].low.millis = 3 },
		"a block of":               func(k *Keyspace) { k.deadlines.chunks[0].blocks[1].bytes++ },
		"a chunk of 1000 is":       func(k *Keyspace) { k.deadlines.chunks[0].count++ },
		"a chunk of 0 is":          func(k *Keyspace) { k.deadlines.chunks = append(k.deadlines.chunks, &chunk{}) },
		"deadlines are out of ord": func(k *Keyspace) { d := k.deadlines.chunks[0].blocks[1].deadlines; d[1], d[2] = d[2], d[1] },
	} {
		k := New(0)
		for i := range 1000 {
			key := fmt.Sprint("k", i)
			it := NewItem(Hash(key), key, "v", int64(1000+i), EncodingAuto)
			k.Put(&it)
		}
		require.NoError(t, k.Verify())
		damage(k)
		require.ErrorContains(t, k.Verify(), want)
	}
}

// TestSizeClasses: what counts is at least what is there, and at most an eighth and 16 bytes more.
func TestSizeClasses(t *testing.T) {
	previous := sizeClass(0)
	for n := 0; n < 100<<20; n += 1 + n/50 {
		class := classOf(n)
		got := class.bytes() - itemBytes
		require.GreaterOrEqual(t, got, int64(n))
		require.LessOrEqual(t, got, int64(n+n/8+sizeUnit), n)
		require.GreaterOrEqual(t, class, previous)
		previous = class
		if n > 0 {
			require.Equal(t, class, classOf(int(got)), "the largest of its class")
			require.Greater(t, classOf(int(got)+1), class)
		}
	}
}
