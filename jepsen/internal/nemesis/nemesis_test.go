package nemesis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/network"
	"github.com/holdfast/holdfast/jepsen/internal/schedule"
)

func TestRowsAreWhole(t *testing.T) {
	names := map[string]bool{}
	for _, f := range faults {
		require.False(t, names[f.Name], f.Name)
		names[f.Name] = true
		require.NotNil(t, f.inject, f.Name)
		require.NotEmpty(t, f.Summary, f.Name)
		require.LessOrEqual(t, f.Min, f.Max, f.Name)
		require.Equal(t, f.Lane == schedule.Clock, f.NoExcuse, "%s: a lease may be late but for what a clock says", f.Name)
	}
	require.InDelta(t, 0.12, schedule.Drift(Kinds()), 0)
}

// matrix returns a row for each member, whose columns are the members that it hears.
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

// TestHolderWithoutALock: a holder that never had its lock is not judged.
func TestHolderWithoutALock(t *testing.T) {
	n := &Nemesis{}
	for range 100 {
		h := &holder{lease: second, granted: make(chan time.Time)}
		close(h.granted)
		require.Equal(t, "not judged", n.judgeHolder(t.Context(), "holder-vanished", h))
	}
	require.Empty(t, n.Findings())
}
