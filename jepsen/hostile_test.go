package main

import (
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/cluster"
	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// TestNodeBeyondItsMemoryIsFound shows that a node that uses more memory than its flags allow is reported, with the
// fault during which it did.
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

// TestHostileRunsChooseTheirMemory shows that users cannot set --max-memory in runs with hostile clients, since nodes
// would be judged by another bound.
func TestHostileRunsChooseTheirMemory(t *testing.T) {
	tr := &trial{o: &options{nodes: 5}}
	limits, err := tr.limits()
	require.NoError(t, err)
	require.EqualValues(t, allAddressSpace/5, limits.AddressSpace)
	tr.o.serverArgs = "--max-memory 1gb"
	_, err = tr.limits()
	require.ErrorIs(t, err, errOwnMemory)
}

// TestMain acts as a run if a soak has started this program. Runs with odd seeds are not valid.
func TestMain(m *testing.M) {
	if dir := os.Getenv(soakEnv); dir != "" {
		os.Exit(pretend(dir))
	}
	os.Exit(m.Run())
}

func pretend(dir string) int {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	seed, _ := fs.Uint64("seed", 0, ""), fs.Duration("soak", time.Hour, "")
	if err := fs.Parse(os.Args[1:]); err != nil {
		return exitUnknown
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return exitUnknown
	}
	if err := os.WriteFile(filepath.Join(dir, "verdict.txt"), nil, 0o600); err != nil {
		return exitUnknown
	}
	return int(*seed % 2)
}

func TestSoakKeepsWhatIsNotValid(t *testing.T) {
	for first, want := range map[uint64]int{1: exitInvalid, 2: exitValid} {
		store := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		runs := 0
		code, err := soak(ctx, &options{soak: time.Hour, seed: first, store: store}, nil, func() {
			if runs++; runs == 1 {
				cancel()
			}
		})
		require.NoError(t, err)
		require.Equal(t, want, code)
		kept, err := filepath.Glob(filepath.Join(store, "soak-*", "verdict.txt"))
		require.NoError(t, err)
		require.Len(t, kept, int(first%2))
		if first == 1 {
			require.FileExists(t, filepath.Join(store, "soak-1", "output.txt"))
		}
	}
}

func TestInterruptedSoakShowsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, err := soak(ctx, &options{soak: time.Hour, seed: 1, store: t.TempDir()}, nil, func() {})
	require.NoError(t, err)
	require.Equal(t, exitUnknown, code)
}

func TestSoakShowsWhatTells(t *testing.T) {
	require.Equal(t, `    skipped: power: not root
    10 operations: 8 ok, 1 failed, 1 unknown
    append: list           INVALID (3 operations)
        append:0: lost
    bounds: 1 MiB of memory valid (3 operations, most memory MiB 1)
    longest time without service: 2s (kill-all at 3.0s)
`, short(`level=INFO msg=starting
holdfast: all under all, 5 nodes
skipped: power: not root
10 operations: 8 ok, 1 failed, 1 unknown

append: list           INVALID (3 operations)
    append:0: lost
counter: increments    valid (3 operations)
bounds: 1 MiB of memory valid (3 operations, most memory MiB 1)

    from       to  fault                silence   recovery  whom
    3.0s     3.8s  kill-all                  2s       20ms  n1
longest time without service: 2s (kill-all at 3.0s)

verdict: INVALID
`))
}

// TestVirtualSoakStopsAtTheFirstInvalidRun shows that a run in virtual time that is not valid ends the soak, and that
// its output is kept.
func TestVirtualSoakStopsAtTheFirstInvalidRun(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the run is a shell script")
	}
	test := filepath.Join(t.TempDir(), "virtual.test")
	script := `#!/bin/sh
echo "1 runs, 1h0m0s of virtual time, 8000 operations, 150 terms, 60 faults of 4${HOLDFAST_JEPSEN_SEEDS#1@} kinds"
[ "$HOLDFAST_JEPSEN_SEEDS" != 1@3 ]
`
	require.NoError(t, os.WriteFile(test, []byte(script), 0o700))
	ctx, stop := context.WithCancel(t.Context())
	s := &virtualSoak{test: test, length: "1h", store: t.TempDir(), next: 1, stop: stop}
	for ctx.Err() == nil && s.next < 9 {
		s.run(ctx)
	}
	require.Error(t, ctx.Err())
	require.NoError(t, s.err)
	require.Equal(t, []uint64{3}, s.bad)
	require.FileExists(t, filepath.Join(s.store, "virtual-3.txt"))
	require.Equal(t, []any{2, 2 * time.Hour, 16000, 300, 120, 41},
		[]any{s.runs, s.time, s.operations, s.terms, s.faults, s.fewest})
}
