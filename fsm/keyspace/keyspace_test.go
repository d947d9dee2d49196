package keyspace

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKeyspaceModel runs random changes on a keyspace and on a map. The keyspace sweeps now and then,
// which shows nowhere; what it captured stays as it was.
func TestKeyspaceModel(t *testing.T) {
	t.Parallel()
	for seed := range int64(20) {
		rng := rand.New(rand.NewSource(seed))
		k, m := New(0), directoryModel{}
		clock := int64(0)
		var captures []Captured
		var held [][]Item
		var at []int64 // the clock of each capture
		for range 2000 {
			n := rng.Intn(200)
			key := fmt.Sprint(n)
			_, there := m[key]
			switch rng.Intn(10) {
			case 0, 1, 2, 3, 4:
				it := NewItem(Hash(key), key, fmt.Sprintf("%0*d", rng.Intn(300), n), rng.Int63n(40)*(clock+rng.Int63n(100))/40,
					EncodingAuto)
				switch {
				case there && m[key].object != nil && rng.Intn(2) == 0: // changed in place
					it = m[key]
					it.object.collection.(*pile).bytes = rng.Int63n(300)
				case rng.Intn(3) == 0:
					it = NewCollection(Hash(key), key, &pile{rng.Int63n(300)}, it.DeadlineMillis, 1)
				}
				if rng.Intn(2) == 0 {
					it = it.WithMark(Mark{SinceMillis: clock, Conn: uint64(rng.Intn(300))})
				}
				if there && rng.Intn(2) == 0 {
					it.DeadlineMillis = m[key].DeadlineMillis // another size under the same deadline
				}
				if it.Ended(clock) {
					continue
				}
				it.SetVersion(uint64(n))
				it.SetAccount(rng.Intn(4) * rng.Intn(2))
				k.Put(&it)
				m[key] = it
			case 5, 6:
				if there {
					require.Equal(t, m[key], k.Remove(Hash(key), key))
					delete(m, key)
				}
			case 7:
				clock += rng.Int63n(10)
				k.Advance(clock)
				for key, it := range m {
					if it.Ended(clock) {
						delete(m, key)
					}
				}
			case 8:
				seen := 0
				swept := k.Sweep(clock, rng.Intn(20), func(it *Item) {
					require.True(t, it.Ended(clock))
					seen++
				})
				require.Equal(t, swept, seen)
				if rng.Intn(4) == 0 {
					k.SweepAll(clock)
				}
			case 9:
				if rng.Intn(20) == 0 {
					captures, held, at = append(captures, k.Capture()), append(held, m.sorted()), append(at, clock)
					require.Equal(t, k.Stored(), captures[len(captures)-1].Len())
				}
			}
			checkCounts(t, k, m, clock)
			if rng.Intn(20) == 0 {
				checkAscend(t, k, m, clock, rng)
			}
		}
		require.NoError(t, k.Verify())
		require.True(t, k.HasAccounts())
		k.SweepAll(math.MaxInt64)
		for key, it := range m {
			if it.DeadlineMillis != Never {
				delete(m, key)
			}
		}
		var usage [4]Usage
		for _, it := range m {
			require.Equal(t, it.Key(), fmt.Sprint(it.Version()))
			usage[it.Account()].Keys++
			usage[it.Account()].Bytes += it.Bytes()
		}
		for account := 1; account < len(usage); account++ {
			require.Equal(t, usage[account], k.Usage(account))
		}
		require.Zero(t, k.Usage(MaxAccount))
		for i := range captures {
			var got []Item
			seen := 0
			captures[i].Ascend(func(it *Item) bool {
				if seen++; !it.Ended(at[i]) {
					got = append(got, *it)
				}
				return true
			})
			require.Equal(t, captures[i].Len(), seen)
			require.True(t, slices.Equal(held[i], got))
		}
	}
}

// checkAscend compares what is behind a hash, and passes few ended items where it may.
func checkAscend(t *testing.T, k *Keyspace, m directoryModel, clock int64, rng *rand.Rand) {
	t.Helper()
	require.NoError(t, k.Verify())
	from := rng.Uint64() * uint64(rng.Intn(2))
	want := slices.DeleteFunc(m.sorted(), func(it Item) bool { return it.Hash < from })
	var got []Item
	passed := k.Ascend(from, clock, math.MaxInt, func(it *Item) bool { got = append(got, *it); return true })
	require.True(t, slices.Equal(want, got))
	require.LessOrEqual(t, passed, k.Stored()-len(m))
	if from == 0 {
		require.Equal(t, k.Stored()-len(m), passed)
	}
	most, seen := rng.Intn(4), 0
	require.Equal(t, min(most+1, passed), k.Ascend(from, clock, most, func(*Item) bool { seen++; return true }))
	if passed <= most {
		require.Len(t, want, seen)
	}
	if len(want) > 0 {
		seen = 0
		k.Ascend(from, clock, math.MaxInt, func(*Item) bool { seen++; return false })
		require.Equal(t, 1, seen)
	}
}

// TestExpect: items that come in the order of their hashes, and are expected, are no attack.
func TestExpect(t *testing.T) {
	const n = 20_000
	m := directoryModel{}
	for i := range n {
		key := fmt.Sprint(i)
		m[key] = NewItem(Hash(key), key, "", Never, EncodingAuto)
	}
	k := New(0)
	k.Expect(n)
	for _, it := range m.sorted() {
		k.Put(&it)
		require.Nil(t, k.items.bucketOf(it.Hash).overflow)
	}
	require.NoError(t, k.Verify())
}

// TestPrefetchOfASweep: the hashes that are read ahead are the ones that end next, of what has ended.
func TestPrefetchOfASweep(t *testing.T) {
	k := New(0)
	for i := range prefetchFrom {
		key := fmt.Sprint(i)
		it := NewItem(Hash(key), key, "", int64(1+i), EncodingAuto)
		require.False(t, k.Large())
		k.Put(&it)
	}
	require.True(t, k.Large())
	for _, most := range []int{0, 3, MaxPrefetch} {
		for _, ended := range []int{0, 5, 100} {
			hashes := make([]uint64, most)
			n := k.deadlines.hashesBefore(int64(1+ended), hashes)
			require.Equal(t, min(most, ended), n)
			for i, d := range listed(&k.deadlines)[:n] {
				require.Equal(t, d.hash, hashes[i])
			}
		}
	}
	require.Equal(t, 100, k.Sweep(101, prefetchFrom, func(*Item) {}))
	require.NoError(t, k.Verify())
}

// checkCounts compares a keyspace's counts with the model's.
func checkCounts(t *testing.T, k *Keyspace, m directoryModel, clock int64) {
	t.Helper()
	bytes, expires := int64(0), 0
	soon := false
	for _, it := range m {
		if it.object == nil {
			bytes += it.class().bytes()
		} else {
			bytes += classOf(len(it.Key()) + it.tailLen() + objectBytes + int(it.object.collection.Bytes())).bytes()
		}
		if it.DeadlineMillis != Never {
			expires++
			soon = soon || it.DeadlineMillis < clock+5
		}
	}
	require.Equal(t, bytes, k.Bytes())
	require.Equal(t, len(m), k.Len(clock))
	require.Equal(t, expires, k.Expires(clock))
	require.Equal(t, soon, k.EndsBetween(clock, clock+5))
	require.GreaterOrEqual(t, k.Stored(), len(m))
}
