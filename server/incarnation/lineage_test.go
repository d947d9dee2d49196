package incarnation

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// folder is the data folder of a node in a model: its lineage, and the starts that it descends from.
type folder struct {
	lineage   Lineage
	ancestors map[uint64]bool
}

func (f *folder) clone() *folder {
	c := &folder{lineage: append(Lineage(nil), f.lineage...), ancestors: make(map[uint64]bool)}
	for each := range f.ancestors {
		c.ancestors[each] = true
	}
	return c
}

// start is a start of the node, which is proved or not.
func (f *folder) start(r *rand.Rand, proved bool) {
	f.lineage = f.lineage.Start(r.Uint32())
	f.ancestors[f.lineage.Current()] = true
	if proved {
		f.lineage = Lineage{f.lineage.Current()}
	}
}

// TestFollows starts folders, puts old copies back and copies them, at random, and asks for each two folders whether a
// member that knows the one would admit the other. What follows is admitted. What does not is refused, unless the known
// start was earlier than the last that the other proved: such forks only a member in between can tell.
func TestFollows(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 24))
		folders := []*folder{{ancestors: make(map[uint64]bool)}}
		if seed%2 == 0 { // a folder of a release that counted its starts
			old := folders[0]
			for n := range 1 + r.Uint64N(5) {
				old.lineage = Lineage{n + 1}
				old.ancestors[n+1] = true
			}
		}
		folders[0].start(r, true)
		for range 30 {
			f := folders[r.IntN(len(folders))]
			if r.IntN(4) == 0 {
				f = f.clone()
				folders = append(folders, f)
			}
			f.start(r, r.IntN(3) > 0)
		}
		for _, known := range folders {
			for _, f := range folders {
				current := known.lineage.Current()
				switch {
				case f.ancestors[current]:
					require.True(t, f.lineage.Follows(current), "seed %d: %v follows %s", seed, f.lineage, Text(current))
				case !older(current, f.lineage[0]):
					require.False(t, f.lineage.Follows(current), "seed %d: %v does not follow %s", seed, f.lineage, Text(current))
				}
			}
		}
	}
}

// TestFollowsEarlierStarts: a member need not have heard of each start.
func TestFollowsEarlierStarts(t *testing.T) {
	first := Lineage(nil).Start(7)
	l := first
	for range 5 {
		l = Lineage{l.Start(9).Current()}
	}
	require.True(t, l.Follows(first.Current()))
	require.True(t, l.Follows(0), "nothing is known")
	require.False(t, l.Follows(l.Start(1).Current()), "a later start")
	require.False(t, l.Follows(l.Current()+1), "another branch")
}

// TestUnprovedStarts: each has a number of its own, up to the limit; then the last is used again.
func TestUnprovedStarts(t *testing.T) {
	l := Lineage{1<<startBits | 5}
	seen := map[uint64]bool{l.Current(): true}
	for i := range MaxLineage + 3 {
		last := l.Current()
		l = l.Start(uint32(i % 2))
		require.LessOrEqual(t, len(l), MaxLineage)
		require.True(t, l.Follows(last))
		require.True(t, l.Follows(1<<startBits|5))
		require.Equal(t, i < MaxLineage-1, !seen[l.Current()])
		seen[l.Current()] = true
	}
	again, err := Parse(l.Append(nil))
	require.NoError(t, err)
	require.Equal(t, l, again)
}

func FuzzParse(f *testing.F) {
	f.Add(Lineage{1, 1 << startBits}.Append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := Parse(b)
		if err == nil {
			require.Equal(t, b, l.Append(nil))
			require.LessOrEqual(t, len(l), MaxLineage)
		}
	})
}
