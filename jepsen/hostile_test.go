package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/cluster"
	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// TestNodeBeyondItsMemoryIsFound: by what its flags allow, and with the fault that it was under.
func TestNodeBeyondItsMemoryIsFound(t *testing.T) {
	limits := cluster.Limits{MaxMemory: 100 << 20, MaxMemoryClients: 10 << 20}
	h := &history.History{Faults: []history.Fault{
		{Name: "hostile-stranger", Start: int64(2 * time.Second), Stop: int64(4 * time.Second)},
		{Name: "hostile-churn", Start: int64(8 * time.Second), Stop: int64(9 * time.Second)},
	}}
	allowed := limits.Resident(3)
	for _, c := range []struct {
		name     string
		resident int64
		at       time.Duration
		want     string
	}{
		{"within", allowed, 3 * time.Second, ""},
		{
			"under a fault", allowed + 1<<20, 3 * time.Second,
			"n2 took 817 MiB of memory at 3.0s (under hostile-stranger); max-memory 100 MiB and max-memory-clients 10 MiB " +
				"allow 816 MiB",
		},
		{"after a fault", allowed + 1<<20, 5 * time.Second, "(after hostile-stranger)"},
		{"at the start", allowed + 1<<20, time.Second, "(before any fault)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			usage := map[string]cluster.Usage{"n1": {}, "n2": {Resident: c.resident, ResidentAt: int64(c.at)}, "n3": {}}
			results := judgeHostile(h, usage, limits)
			require.Len(t, results, 2)
			verdict := results[1]
			require.Equal(t, int(c.resident>>20), verdict.Counts["most memory MiB"])
			if c.want == "" {
				require.Equal(t, checker.Valid, checker.Worst(results[1:]))
				return
			}
			require.Equal(t, checker.Invalid, checker.Worst(results))
			require.Contains(t, verdict.String(), c.want)
		})
	}
}

func TestNodeBeyondItsDiskIsFound(t *testing.T) {
	r := bounds(nil, map[string]cluster.Usage{"n1": {OnDisk: cluster.MaxOnDisk + 1}}, cluster.Limits{})
	require.Equal(t, checker.Invalid, r.Verdict)
}

func TestNothingToJudgeWithoutHostileClients(t *testing.T) {
	require.Empty(t, judgeHostile(&history.History{}, nil, cluster.Limits{}))
}

// TestHostileRunsChooseTheirMemory: another limit would be judged by the wrong bound.
func TestHostileRunsChooseTheirMemory(t *testing.T) {
	tr := &trial{o: &options{nodes: 5}}
	limits, err := tr.limits()
	require.NoError(t, err)
	require.EqualValues(t, allAddressSpace/5, limits.AddressSpace)
	tr.o.serverArgs = "--max-memory 1gb"
	_, err = tr.limits()
	require.ErrorIs(t, err, errOwnMemory)
}
