package nemesis

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/network"
	"github.com/holdfast/holdfast/jepsen/internal/schedule"
)

func TestEveryKindIsBound(t *testing.T) {
	for _, k := range schedule.Kinds() {
		require.Contains(t, faults, k.Name)
	}
	require.Len(t, faults, len(schedule.Kinds()))
}

// matrix draws who hears whom: a row for each member, in order; its columns are those it hears.
func matrix(fault string, size int) []string {
	hears := topology(fault, network.Nodes(size))
	rows := make([]string, size)
	for to := range size {
		for from := range size {
			switch {
			case to == from:
				rows[to] += "·"
			case hears(to, from):
				rows[to] += "x"
			default:
				rows[to] += " "
			}
		}
	}
	return rows
}

func TestTopologies(t *testing.T) {
	require.Equal(t, []string{"·  ", " ·x", " x·"}, matrix("partition-leader", 3))
	require.Equal(t, []string{"·  ", " ·x", " x·"}, matrix("partition-halves", 3))
	require.Equal(t, []string{"· x", " ·x", "xx·"}, matrix("partition-ring", 3))
	require.Equal(t, []string{"·xx", " ·x", " x·"}, matrix("partition-oneway", 3))
	require.Equal(t, []string{"·  ", "x·x", "xx·"}, matrix("partition-deaf", 3))
	require.Equal(t, []string{"·x   ", "x·   ", "  ·xx", "  x·x", "  xx·"}, matrix("partition-halves", 5))
	require.Equal(t, []string{"·x  x", "x·x  ", " x·x ", "  x·x", "x  x·"}, matrix("partition-ring", 5))
	require.Equal(t, []string{"·xx  ", "x·x  ", "xx·xx", "  x·x", "  xx·"}, matrix("partition-bridge", 5))
}

func TestRingLeavesEachAMajority(t *testing.T) {
	for _, size := range []int{3, 5, 7} {
		for _, row := range matrix("partition-ring", size) {
			heard := 0
			for _, c := range row {
				if c != ' ' {
					heard++
				}
			}
			require.Greater(t, heard, size/2, "of %d", size)
		}
	}
}

func TestClientsAreCutOffWithTheirNode(t *testing.T) {
	hears := topology("partition-oneway", []string{"n2", "n1"})
	require.Equal(t, []network.Link{{From: "n2", To: "n1"}}, cuts([]string{"n2", "n1"}, hears, false))
	require.Equal(t, []network.Link{{From: "n2", To: "n1"}, {From: "c2", To: "n1"}, {From: "n2", To: "c1"}},
		cuts([]string{"n2", "n1"}, hears, true))
}

func TestDamageHitsTheNewestSegmentAndNothingSynced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "raft", "1.seg")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	// A segment that ends in a frame whose last bytes are zero, and room to grow.
	written := append(make([]byte, 0, 4096), "headheadbody\x03\x00\x00\x00\x07\x00\x00\x00body\x03\x00\x00\x00\x00\x00\x00\x00"...)
	segment := append(written, make([]byte, 1000)...)
	require.NoError(t, os.WriteFile(path, segment, 0o644))

	what, err := damage(dir, "store-torn", rand.New(rand.NewPCG(1, 2)))
	require.NoError(t, err)
	require.Contains(t, what, "raft/1.seg")
	torn, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, segment[:len(written)], torn[:len(written)], "what was synced is untouched")
	require.NotEqual(t, segment, torn)

	require.NoError(t, os.WriteFile(path, segment, 0o644))
	_, err = damage(dir, "store-flipped", rand.New(rand.NewPCG(1, 2)))
	require.NoError(t, err)
	flipped, err := os.ReadFile(path)
	require.NoError(t, err)
	different := 0
	for i := range flipped {
		if flipped[i] != segment[i] {
			different++
			require.Less(t, i, len(written))
		}
	}
	require.Equal(t, 1, different)

	_, err = damage(t.TempDir(), "store-torn", rand.New(rand.NewPCG(1, 2)))
	require.ErrorContains(t, err, "no log segment")
}
