package fsm

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkKeyspace checks the invariants of a keyspace.
func checkKeyspace(k *keyspace) error {
	if len(k.top) != 1<<(64-k.topShift) {
		return fmt.Errorf("the top has %d places and shift %d", len(k.top), k.topShift)
	}
	count := 0
	for i := 0; i < len(k.top); i += len(k.top) >> k.top[i].depth {
		s := k.top[i]
		if span := len(k.top) >> s.depth; i%span != 0 || slices.ContainsFunc(k.top[i:i+span], func(t *segment) bool { return t != s }) {
			return fmt.Errorf("a segment of depth %d at %d of %d stands wrong", s.depth, i, len(k.top))
		}
		if s.stamp > k.stamp || s.stamp == k.stamp && k.topStamp != k.stamp && k.stamp != 0 {
			return fmt.Errorf("a segment has stamp %d of %d", s.stamp, k.stamp)
		}
		prefix := uint64(i) << (k.topShift & 63)
		n, err := checkSegment(k, s, prefix)
		if err != nil {
			return err
		}
		count += n
	}
	if count != k.count {
		return fmt.Errorf("%d items, counted as %d", count, k.count)
	}
	return nil
}

func checkSegment(k *keyspace, s *segment, prefix uint64) (count int, err error) {
	if len(s.leaves) != 1<<s.bits || s.bits > maxSegmentBits {
		return 0, fmt.Errorf("a segment has %d places and %d bits", len(s.leaves), s.bits)
	}
	single := 0
	for i := 0; i < len(s.leaves); i += s.span(s.leaves[i]) {
		l := s.leaves[i]
		span := s.span(l)
		if span == 1 {
			single++
		}
		if l.depth < s.depth || span == 0 || i%span != 0 || slices.ContainsFunc(s.leaves[i:i+span], func(m *leaf) bool { return m != l }) {
			return 0, fmt.Errorf("a leaf of depth %d at %d of %d stands wrong", l.depth, i, len(s.leaves))
		}
		if l.stamp > s.stamp || l.stamp > k.stamp {
			return 0, fmt.Errorf("a leaf has stamp %d, its segment %d", l.stamp, s.stamp)
		}
		if err := checkLeaf(l, prefix|uint64(i)<<(64-s.bits)>>s.depth); err != nil {
			return 0, err
		}
		count += l.len()
	}
	if single != s.single {
		return 0, fmt.Errorf("%d leaves have one place, counted as %d", single, s.single)
	}
	return count, nil
}

func checkLeaf(l *leaf, prefix uint64) (err error) {
	if l.many != nil && (l.n != 0 || l.many.Len() <= leafSlots/4) {
		return fmt.Errorf("a leaf has %d items in slots, %d in a tree", l.n, l.many.Len())
	}
	for i := range l.slots {
		it, tag := &l.slots[i], byte(l.tags[i/8]>>(i%8*8))
		if i >= int(l.n) && (*it != item{} || tag != 0) {
			return fmt.Errorf("slot %d of %d is not empty", i, l.n)
		}
		if i < int(l.n) && tag != byte(it.hash) {
			return fmt.Errorf("slot %d has tag %x, hash %x", i, tag, it.hash)
		}
	}
	var previous *item
	l.ascend(0, func(it *item) bool {
		switch {
		case it.hash>>(63-l.depth)>>1 != prefix>>(63-l.depth)>>1:
			err = fmt.Errorf("hash %x is in the leaf of %x with depth %d", it.hash, prefix, l.depth)
		case previous != nil && !previous.before(it):
			err = fmt.Errorf("key %q is out of order", it.key())
		}
		copied := *it
		previous = &copied
		return err == nil
	})
	return err
}

// keyspaceModel is what a keyspace means: a map, sorted when asked.
type keyspaceModel map[string]item

func (m keyspaceModel) sorted() (items []item) {
	for _, it := range m {
		items = append(items, it)
	}
	slices.SortFunc(items, func(a, b item) int {
		if a.before(&b) {
			return -1
		}
		return 1
	})
	return items
}

// items are those of a keyspace from a hash on.
func items(k *keyspace, from uint64) (all []item) {
	k.ascend(from, func(it *item) bool {
		all = append(all, *it)
		return true
	})
	return all
}

// captured is a copy with what it held when it was made.
type captured struct {
	keys keyspace
	want []item
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
}

// exercise runs steps over a keyspace and over the model, and compares them now
// and then: also copies, which must stay as they were, and a copy that goes on by itself.
func exercise(t *testing.T, steps []byte, hashing func(uint64) uint64, keys uint64) {
	k, m := newKeyspace(), keyspaceModel{}
	var copies []captured
	state := uint64(1)
	for i, step := range steps {
		state = state*6364136223846793005 + uint64(step)*1442695040888963407 + 1
		n := state >> 33 % keys
		key := fmt.Sprint(n)
		it := item{data: key + "v", keyLen: uint32(len(key)), hash: hashing(n), version: uint64(i + 1), deadlineMillis: int64(i % 50)}
		was, there := m[key]
		switch {
		case step < 110 || step >= 250 && len(m) == 0:
			prev, replaced := k.put(&it)
			require.Equal(t, there, replaced)
			require.Equal(t, was, prev)
			m[key] = it
		case step < 220:
			prev, removed := k.remove(it.hash, key)
			require.Equal(t, there, removed)
			require.Equal(t, was, prev)
			delete(m, key)
		case step < 245:
			k.touch([]uint64{it.hash, hashing(n + 1)})
			found := k.find(it.hash, key)
			require.Equal(t, there, found != nil)
			if there {
				require.Equal(t, was, *found)
				require.Equal(t, was.due(), k.ending(was.due()).due())
			}
		case step < 248:
			copies = append(copies, captured{k.copy(), m.sorted()})
			if step == 247 && i%2 == 0 {
				k, copies[len(copies)-1].keys = copies[len(copies)-1].keys, k
			}
		case step < 250:
			all := m.sorted()
			from := hashing(n)
			first, _ := slices.BinarySearchFunc(all, from, func(it item, hash uint64) int {
				if it.hash < hash {
					return -1
				}
				return 1
			})
			require.True(t, slices.Equal(all[first:], items(&k, from)))
			require.NoError(t, checkKeyspace(&k))
		case step == 255 && i%16 == 0:
			k.removeDead(25)
			for key, it := range m {
				if it.dead(25) {
					delete(m, key)
				}
			}
		}
		require.Equal(t, len(m), k.len())
	}
	require.NoError(t, checkKeyspace(&k))
	require.True(t, slices.Equal(m.sorted(), items(&k, 0)))
	for i := range copies {
		require.NoError(t, checkKeyspace(&copies[i].keys))
		require.True(t, slices.Equal(copies[i].want, items(&copies[i].keys, 0)))
	}
}

func TestKeyspaceModel(t *testing.T) {
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

func FuzzKeyspace(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\xf5\x00\x80\xff"), uint8(0), uint16(100))
	f.Fuzz(func(t *testing.T, steps []byte, hashing uint8, keys uint16) {
		exercise(t, steps, hashings[int(hashing)%len(hashings)], uint64(keys)+1)
	})
}

// TestKeyspaceGrowsAndShrinks: over many segments, and back to one leaf.
func TestKeyspaceGrowsAndShrinks(t *testing.T) {
	const n = 100_000
	k := newKeyspace()
	for i := range n {
		key := fmt.Sprint(i)
		k.put(&item{data: key, keyLen: uint32(len(key)), hash: hashKey(key)})
	}
	require.NoError(t, checkKeyspace(&k))
	require.Greater(t, len(k.top), 4)
	before := k.copy()
	for i := range n - 1 {
		key := fmt.Sprint(i)
		_, ok := k.remove(hashKey(key), key)
		require.True(t, ok)
		if i%10_000 == 0 {
			require.NoError(t, checkKeyspace(&k))
		}
	}
	require.NoError(t, checkKeyspace(&k))
	require.Len(t, k.top, 1)
	require.Len(t, k.top[0].leaves, 1)
	require.NoError(t, checkKeyspace(&before))
	require.Len(t, items(&before, 0), n)
}

// TestKeysWithLikeHashes: who chooses keys whose hashes begin alike, or are the same, does not make the
// directory grow, and each key is found in a few steps.
func TestKeysWithLikeHashes(t *testing.T) {
	for _, shift := range []int{0, 8, 40} {
		k := newKeyspace()
		for i := range 50_000 {
			key := fmt.Sprint(i)
			k.put(&item{data: key, keyLen: uint32(len(key)), hash: hashKey(key) & (1<<shift - 1)})
		}
		require.NoError(t, checkKeyspace(&k))
		places := len(k.top)
		for _, s := range k.top {
			places += len(s.leaves)
		}
		require.Less(t, places, 1<<23/leafSlots)
		require.Len(t, items(&k, 0), 50_000)
	}
}

// TestCopyWithLikeHashes: a copy and its original go on without each other, where a tree holds the items, too.
func TestCopyWithLikeHashes(t *testing.T) {
	k := newKeyspace()
	const n = 10 * leafSlots
	for i := range n {
		key := fmt.Sprint(i)
		k.put(&item{data: key, keyLen: uint32(len(key))})
	}
	c := k.copy()
	for i := range n / 2 {
		k.remove(0, fmt.Sprint(i))
	}
	require.Len(t, items(&k, 0), n/2)
	require.Len(t, items(&c, 0), n)
}
