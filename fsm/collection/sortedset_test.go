package collection

import (
	"math"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// zsetModel is a sorted set as plainly as can be: the members in order.
type zsetModel struct {
	members []scored
	large   bool
}

func (m *zsetModel) index(member string) int {
	return slices.IndexFunc(m.members, func(s scored) bool { return s.member == member })
}

func (m *zsetModel) put(member string, score float64) bool {
	i := m.index(member)
	if i >= 0 {
		m.members[i].score = score
	} else {
		m.members = append(m.members, scored{score, member})
	}
	slices.SortFunc(m.members, func(a, b scored) int {
		switch {
		case beforeScored(a, b):
			return -1
		case beforeScored(b, a):
			return 1
		}
		return 0
	})
	m.large = m.large || len(m.members) > 128 || len(member) > 64
	return i < 0
}

func (m *zsetModel) copy() *zsetModel { return &zsetModel{slices.Clone(m.members), m.large} }

func members(walk func(f func(member string, score float64) bool)) (ms []scored) {
	walk(func(member string, score float64) bool {
		ms = append(ms, scored{score, member})
		return true
	})
	return ms
}

// checkSortedSet compares a sorted set with the model by all that a sorted set tells.
func checkSortedSet(t *testing.T, m *zsetModel, z *SortedSet) {
	t.Helper()
	require.Equal(t, len(m.members), z.Len())
	require.Equal(t, m.large, z.Encoding() == "skiplist")
	for i, want := range m.members {
		member, score := z.At(i)
		require.Equal(t, want, scored{score, member})
		rank, ok := z.Rank(member)
		require.True(t, ok)
		require.Equal(t, i, rank)
		got, ok := z.Score(member)
		require.True(t, ok)
		require.Equal(t, math.Float64bits(score), math.Float64bits(got))
	}
	_, ok := z.Rank("missing")
	require.False(t, ok)
	for _, i := range []int{0, 1, len(m.members) / 2, len(m.members) - 1} {
		if i < 0 || i >= len(m.members) {
			continue
		}
		require.Equal(t, m.members[i:], members(func(f func(string, float64) bool) { z.Ascend(i, f) }))
		down := members(func(f func(string, float64) bool) { z.Descend(i, f) })
		slices.Reverse(down)
		require.Equal(t, m.members[:i+1], down)
		require.Equal(t, i, z.Search(func(member string, score float64) bool {
			return !beforeScored(scored{score, member}, m.members[i])
		}))
	}
	z.Ascend(z.Len(), func(string, float64) bool { t.Fatal("beyond the end"); return true })
	require.Equal(t, z.Len(), z.Search(func(string, float64) bool { return false }))
	var last uint64
	seen := 0
	z.Scan(0, func(hash uint64, _ string, _ float64) bool {
		require.GreaterOrEqual(t, hash, last)
		last = hash
		seen++
		return true
	})
	require.Equal(t, z.Len(), seen)
	checkLoads(t, z)
}

var modelScores = []float64{
	0, math.Copysign(0, -1), 1, -1, 0.5, math.Inf(1), math.Inf(-1), math.MaxFloat64, 5e-324,
	1 << 53,
}

// sortedSetStep makes a random change on a sorted set and on the model.
func sortedSetStep(t *testing.T, rng *rand.Rand, z *SortedSet, m *zsetModel, space int) {
	member := strconv.Itoa(rng.Intn(space))
	if rng.Intn(2000) == 0 {
		member = strings.Repeat("m", 60+rng.Intn(10))
	}
	score := float64(rng.Intn(20))
	if rng.Intn(3) == 0 {
		score = modelScores[rng.Intn(len(modelScores))]
	}
	switch rng.Intn(8) {
	case 0, 1:
		i := m.index(member)
		require.Equal(t, i >= 0, z.Remove(member))
		if i >= 0 {
			m.members = slices.Delete(m.members, i, i+1)
		}
	case 2:
		if rng.Intn(10) > 0 {
			return
		}
		from := rng.Intn(len(m.members) + 1)
		to := min(len(m.members), from+rng.Intn(10))
		z.RemoveRange(from, to)
		m.members = slices.Delete(m.members, from, to)
	default:
		require.Equal(t, m.put(member, score), z.Put(member, score))
	}
}

// TestSortedSetModel runs random changes on a sorted set and on the model. Clones that were taken on the
// way stay as they were.
func TestSortedSetModel(t *testing.T) {
	t.Parallel()
	for seed := range int64(24) {
		rng := rand.New(rand.NewSource(seed))
		z, m := NewSortedSet(), &zsetModel{}
		space := []int{3, 150, 200, 600}[seed%4]
		var clones []*SortedSet
		var models []*zsetModel
		for i := range 1200 {
			sortedSetStep(t, rng, z, m, space)
			if i%200 == 0 {
				clones, models = append(clones, z), append(models, m.copy())
				z = z.Clone().(*SortedSet)
				checkSortedSet(t, m, z)
			}
		}
		checkSortedSet(t, m, z)
		for i := range clones {
			checkSortedSet(t, models[i], clones[i])
		}
	}
}

// FuzzSortedSet takes each byte for a change.
func FuzzSortedSet(f *testing.F) {
	f.Add([]byte("some changes"), int64(1))
	f.Fuzz(func(t *testing.T, changes []byte, seed int64) {
		rng := rand.New(rand.NewSource(seed))
		z, m := NewSortedSet(), &zsetModel{}
		for _, b := range changes {
			sortedSetStep(t, rng, z, m, 1+int(b)*2)
			if b == 0 {
				z = z.Clone().(*SortedSet)
			}
		}
		checkSortedSet(t, m, z)
	})
}

func TestSortedSetExpects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		members, longest int
		encoding         string
	}{{128, 64, "listpack"}, {129, 1, "skiplist"}, {1, 65, "skiplist"}} {
		z := NewSortedSet()
		z.Put("a", 1)
		z.Expect(c.members, c.longest)
		z.Put("b", 0)
		require.Equal(t, c.encoding, z.Encoding())
		checkLoads(t, z)
	}
}

// As in Redis, a listpack stores minus zero as zero, and a skiplist keeps the sign.
func TestMinusZero(t *testing.T) {
	t.Parallel()
	z := NewSortedSet()
	z.Put("a", math.Copysign(0, -1))
	score, _ := z.Score("a")
	require.False(t, math.Signbit(score))
	z.Expect(129, 0)
	z.Put("a", math.Copysign(0, -1))
	score, _ = z.Score("a")
	require.True(t, math.Signbit(score))
	checkLoads(t, z)
}

var _ keyspace.Collection = (*SortedSet)(nil)

// sortedSetOf is a sorted set of members of so many bytes.
func sortedSetOf(n, bytes int) *SortedSet {
	z := NewSortedSet()
	for i := range n {
		z.Put(strconv.Itoa(10000+i)+strings.Repeat("x", bytes-5), float64(i*7919%1009))
	}
	return z
}

// A gathering makes the sorted set that changes one after another make.
func TestGathering(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewSource(1))
	for _, n := range []int{0, 1, 128, 129, 1000} {
		for _, longest := range []int{1, 70} {
			var g Gathering
			z, small := NewSortedSet(), NewSortedSet()
			z.Expect(129, 0)
			for i := range n {
				member, score := strconv.Itoa(i)+strings.Repeat("x", rng.Intn(longest)), modelScores[rng.Intn(len(modelScores))]
				g.Add(member, score)
				z.Put(member, score)
				if rng.Intn(5) == 0 {
					g.Add(member, 7)
					z.Put(member, score*2+7)
				}
			}
			g.Merge(func(a, b float64) float64 { return a*2 + b })
			require.Equal(t, z.Len(), g.Len())
			got := g.SortedSet()
			z.Ascend(0, func(member string, score float64) bool { small.Put(member, score); return true })
			if !small.large() {
				z = small // as in Redis, a union is small if it fits
			}
			require.Equal(t, saved(z), saved(got))
			require.Equal(t, z.Bytes(), got.Bytes())
			checkLoads(t, got)
			got.Put("new", 1)
			require.True(t, got.Remove("new"))
			require.Equal(t, saved(z)[1:], saved(got)[1:])
			g.Sort()
			i := 0
			g.All(func(member string, score float64) {
				want, _ := z.At(i)
				require.Equal(t, want, member)
				i++
			})
		}
	}
}
