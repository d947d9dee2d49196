package keyspace

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// directoryModel is what a directory means: a map, sorted when asked.
type directoryModel map[string]Item

func (m directoryModel) sorted() (items []Item) {
	for _, it := range m {
		items = append(items, it)
	}
	slices.SortFunc(items, func(a, b Item) int {
		if a.Before(&b) {
			return -1
		}
		return 1
	})
	return items
}

// items lists a directory's items from a hash on.
func items(d *directory, from uint64) (all []Item) {
	d.ascend(from, func(it *Item) bool {
		all = append(all, *it)
		return true
	})
	return all
}

// copied is a copy with what it held when it was made.
type copied struct {
	keys directory
	want []Item
}

// hashings are ways to hash: as is, with hashes that collide, with hashes that
// begin alike, and with few bits at all.
var hashings = []func(n uint64) uint64{
	func(n uint64) uint64 { return n * 0x9E3779B97F4A7C15 },
	func(n uint64) uint64 { return n % 7 << 61 },
	func(n uint64) uint64 { return n * 0x9E3779B97F4A7C15 >> 50 },
	func(n uint64) uint64 { return n },
	func(n uint64) uint64 { return n % 256 << 56 },
	func(n uint64) uint64 { return n%2<<63 | n/2%1000 },
	func(n uint64) uint64 { // most are alike, and the others fill what lies beside them
		if n%8 != 0 {
			return 0
		}
		return 1 << (52 + n/8%6)
	},
}

// exercise runs steps over a directory and over the model, and compares them now
// and then: also copies, which must stay as they were, and a copy that goes on by itself.
func exercise(t *testing.T, steps []byte, hashing func(uint64) uint64, keys uint64) {
	d, m := newDirectory(), directoryModel{}
	var copies []copied
	state := uint64(1)
	for i, step := range steps {
		state = state*6364136223846793005 + uint64(step)*1442695040888963407 + 1
		n := state >> 33 % keys
		key := strings.TrimPrefix(fmt.Sprint(n), "0") // also none, with the hash 0
		it := Item{data: join(key, "v", EncodingAuto), Hash: hashing(n), stamp: uint64(i + 1), DeadlineMillis: int64(i % 50)}
		was, there := m[key]
		switch {
		case step < 110 || step >= 250 && len(m) == 0:
			prev, replaced := d.put(&it)
			require.Equal(t, there, replaced)
			require.Equal(t, was, prev)
			m[key] = it
			require.Equal(t, d.stamp, d.bucketOf(it.Hash).stamp, "what was copied is not copied again")
		case step < 220:
			prev, removed := d.remove(it.Hash, key)
			require.Equal(t, there, removed)
			require.Equal(t, was, prev)
			delete(m, key)
			require.Equal(t, d.stamp, d.bucketOf(it.Hash).stamp, "what was copied is not copied again")
		case step < 245:
			d.touch([]uint64{it.Hash, hashing(n + 1)})
			if s := d.segmentOf(it.Hash); s.stamp == d.stamp {
				require.Same(t, s, d.ownSegment(it.Hash))
			}
			if b := d.bucketOf(it.Hash); b.stamp == d.stamp {
				require.Same(t, b, d.own(it.Hash))
			}
			found := d.find(it.Hash, key)
			require.Equal(t, there, found != nil)
			if there {
				require.Equal(t, was, *found)
				require.Equal(t, was.deadline(), d.withDeadline(was.deadline()).deadline())
			}
		case step < 248:
			copies = append(copies, copied{d.copy(), m.sorted()})
			d.removeEnded(0)
			require.NotEqual(t, d.stamp, d.bucketOf(it.Hash).stamp, "nothing has ended, and nothing is copied")
			if step == 247 && i%2 == 0 {
				d, copies[len(copies)-1].keys = copies[len(copies)-1].keys, d
			}
		case step < 250:
			all := m.sorted()
			from := hashing(n)
			first, _ := slices.BinarySearchFunc(all, from, func(it Item, hash uint64) int {
				if it.Hash < hash {
					return -1
				}
				return 1
			})
			require.True(t, slices.Equal(all[first:], items(&d, from)))
			require.NoError(t, verifyDirectory(&d))
		case step == 255 && i%16 == 0:
			d.removeEnded(25)
			for key, it := range m {
				if it.Ended(25) {
					delete(m, key)
				}
			}
		}
		require.Equal(t, len(m), d.count)
	}
	require.NoError(t, verifyDirectory(&d))
	require.True(t, slices.Equal(m.sorted(), items(&d, 0)))
	for i := range copies {
		require.NoError(t, verifyDirectory(&copies[i].keys))
		require.True(t, slices.Equal(copies[i].want, items(&copies[i].keys, 0)))
	}
}

func TestDirectoryModel(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	for i, hashing := range hashings {
		for _, keys := range []uint64{5, 100, 3000} {
			steps := make([]byte, 6000)
			for j := range steps {
				steps[j] = byte(rng.Intn(256))
				if j/1500%2 == 0 && steps[j] < 220 && rng.Intn(2) == 0 {
					steps[j] = 0 // grow, then shrink
				}
			}
			t.Run(fmt.Sprint(i, "-", keys), func(t *testing.T) { exercise(t, steps, hashing, keys) })
		}
	}
}

func FuzzDirectory(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\xf5\x00\x80\xff"), uint8(0), uint16(100))
	f.Fuzz(func(t *testing.T, steps []byte, hashing uint8, keys uint16) {
		exercise(t, steps, hashings[int(hashing)%len(hashings)], uint64(keys)+1)
	})
}

// TestDirectoryGrowsAndShrinks: over many segments, and back to one bucket.
func TestDirectoryGrowsAndShrinks(t *testing.T) {
	const n = 100_000
	d := newDirectory()
	for i := range n {
		key := fmt.Sprint(i)
		d.put(&Item{data: join(key, "", EncodingAuto), Hash: Hash(key)})
		if i%2500 == 0 { // also between the splits of a segment and of its halves
			require.NoError(t, verifyDirectory(&d))
		}
	}
	require.NoError(t, verifyDirectory(&d))
	require.Greater(t, len(d.top), 4)
	require.LessOrEqual(t, len(d.top), 16)
	before := d.copy()
	d.own(0)
	top := &d.top[0]
	d.own(math.MaxUint64)
	require.Same(t, top, &d.top[0], "the top is copied once")
	for i := range n - 1 {
		key := fmt.Sprint(i)
		_, ok := d.remove(Hash(key), key)
		require.True(t, ok)
		if i%10_000 == 0 {
			require.NoError(t, verifyDirectory(&d))
		}
	}
	require.NoError(t, verifyDirectory(&d))
	require.Len(t, d.top, 1)
	require.Len(t, d.top[0].buckets, 1)
	require.NoError(t, verifyDirectory(&before))
	require.Len(t, items(&before, 0), n)
}

// TestEndedItemsLeaveNoBuckets: what ended in one pass leaves one bucket, as what is removed item by item.
func TestEndedItemsLeaveNoBuckets(t *testing.T) {
	d := newDirectory()
	for i := range 20_000 {
		key := fmt.Sprint(i)
		d.put(&Item{data: join(key, "", EncodingAuto), Hash: Hash(key), DeadlineMillis: int64(1 + i%2)})
	}
	for i, left := range []int{20_000, 10_000, 0} {
		d.removeEnded(int64(1 + i))
		require.Equal(t, left, d.count)
		require.NoError(t, verifyDirectory(&d))
	}
	require.Len(t, d.top, 1)
	require.Len(t, d.top[0].buckets, 1)
}

// TestSmallSegmentBesideDeep: a segment of one bucket is not joined with one of several that lie beside it.
func TestSmallSegmentBesideDeep(t *testing.T) {
	const n = 40_000
	d := newDirectory()
	change := func(from, to, prefix uint64, change func(it *Item)) {
		for i := from; i < to; i++ {
			key := fmt.Sprint(prefix, i)
			change(&Item{data: join(key, "", EncodingAuto), Hash: Hash(key)>>2 | prefix<<62})
		}
		require.NoError(t, verifyDirectory(&d))
	}
	put := func(it *Item) { d.put(it) }
	change(0, n, 3, put)
	change(0, 100, 2, put)
	change(0, 100, 0, put)
	require.Equal(t, uint8(2), d.segmentOf(2<<62).depth)
	for _, prefix := range []uint64{2, 0} {
		change(1, 100, prefix, func(it *Item) { d.remove(it.Hash, it.Key()) })
	}
	require.Len(t, items(&d, 0), n+2)
}

// TestKeysWithLikeHashes: who chooses keys whose hashes begin alike, or are the same, does not make the
// directory grow, and each key is found in a few steps.
func TestKeysWithLikeHashes(t *testing.T) {
	for _, shift := range []int{0, 8, 40} {
		d := newDirectory()
		for i := range 50_000 {
			key := fmt.Sprint(i)
			d.put(&Item{data: join(key, "", EncodingAuto), Hash: Hash(key) & (1<<shift - 1)})
		}
		require.NoError(t, verifyDirectory(&d))
		places := len(d.top)
		for _, s := range d.top {
			places += len(s.buckets)
		}
		require.Less(t, places, 1<<23/bucketSlots)
		require.Len(t, items(&d, 0), 50_000)
		d.put(&Item{data: join("last", "", EncodingAuto), Hash: 1 << 63})
		n := 0
		d.ascend(0, func(*Item) bool { n++; return n < 10 })
		require.Equal(t, 10, n, "it ends with the first that says so")
	}
}

// TestCopyWithLikeHashes: a copy and its original go on without each other, where a tree holds the items, too.
func TestCopyWithLikeHashes(t *testing.T) {
	d := newDirectory()
	const n = 10 * bucketSlots
	for i := range n {
		key := fmt.Sprint(i)
		d.put(&Item{data: join(key, "", EncodingAuto)})
	}
	c := d.copy()
	for i := range n / 2 {
		d.remove(0, fmt.Sprint(i))
	}
	require.Len(t, items(&d, 0), n/2)
	for left := n / 2; left > 0; left-- {
		d.remove(0, fmt.Sprint(n-left))
		require.Len(t, items(&d, 0), left-1)
		require.NoError(t, verifyDirectory(&d))
	}
	require.Len(t, items(&c, 0), n)
}

// TestItemsOfOneDeadline: of several items with one hash and one deadline the first by key is swept first, in whatever
// order they came.
func TestItemsOfOneDeadline(t *testing.T) {
	for _, n := range []int{5, 3 * bucketSlots} { // in slots, in a tree
		for _, up := range []bool{false, true} {
			d := newDirectory()
			var it Item
			for i := range n {
				if !up {
					i = n - 1 - i
				}
				it = Item{data: join(fmt.Sprintf("%03d", i), "", EncodingAuto), DeadlineMillis: 7}
				d.put(&it)
			}
			require.Equal(t, "000", d.withDeadline(it.deadline()).Key())
		}
	}
}

// TestTouch: of each key a prefetch reads the slot, the string and the object that a search would read.
func TestTouch(t *testing.T) {
	d := newDirectory()
	var hashes []uint64
	want := uint64(0)
	for i := range uint64(MaxPrefetch) { // two buckets, in which each item has a tag of its own
		hash, key := i<<59|i, fmt.Sprint(i)
		it := NewItem(hash, key, "value", Never, EncodingAuto)
		if i%3 == 0 {
			it = NewCollection(hash, key, &pile{}, Never, 1<<32)
			want += it.object.generation
		}
		it.SetVersion(1 << i)
		d.put(&it)
		hashes = append(hashes, hash)
		want += uint64(len(it.data)) + it.stamp + uint64(it.data[0])
	}
	require.Equal(t, want, d.touch(hashes))
}
