package report

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/bench/internal/load"
	"github.com/holdfast/holdfast/bench/internal/target"
	"github.com/holdfast/holdfast/bench/internal/workload"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// someResult returns a result of three rounds and two targets. One run of one target failed.
func someResult() *Result {
	r := &Result{
		Started: time.Date(2026, 11, 21, 6, 30, 0, 0, time.UTC), Command: "go run ./bench --x",
		Machine: Machine{CPU: "Some CPU", CPUs: 4, Kernel: "6.1", Go: "go1.26", Revision: "abc"},
		Targets: []target.Target{{Name: "redis"}, {Name: "holdfast"}},
	}
	r.Machine.Floors.AppendSyncMicros = 260
	for round := range 3 {
		for i, t := range r.Targets {
			for _, n := range []int{1, 64} {
				p := Point{Workload: "uncontended", Target: t.Name, Connections: n}
				rate := float64(n*1000*(round+1)) / float64(i+1)
				f := &workload.Figures{
					Steps: map[string]load.Latency{
						"pair":    {Count: int64(rate * 5), PerSecond: rate},
						"acquire": {P50Micros: 1000 / rate * 1000, P99Micros: 15_400, P999Micros: 120_000},
					},
					Numbers: map[string]float64{"window_seconds": 5, "server_cpu_seconds": 2},
				}
				if i == 1 && round == 2 {
					f.Errors = map[string]int64{"CLUSTERDOWN": 3}
				}
				r.Runs = append(r.Runs, Run{Point: p, Round: round, Figures: f})
			}
			held := Run{Point: Point{Workload: "memory", Target: t.Name}, Round: round}
			if i == 0 {
				held.Figures = &workload.Figures{Numbers: map[string]float64{
					"bytes_per_lock": 80.25 + float64(round),
					"held_locks":     1e6,
				}}
			} else {
				held.Failed = "no pids"
			}
			r.Runs = append(r.Runs, held)
		}
	}
	return r
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, someResult().WriteMarkdown(&b, workload.All()))
	require.Equal(t, protocoltest.Golden(t, "testdata/result.md", b.String()), b.String())
}

// Ratios are taken within a round, so that a slow round does not change them.
func TestRatiosAreTakenRoundByRound(t *testing.T) {
	t.Parallel()
	r := someResult()
	text := r.ratioCell(workload.All()[0], Point{Workload: "uncontended", Target: "holdfast", Connections: 64})
	require.Equal(t, "0.50", text)
}

func TestNumbersAsText(t *testing.T) {
	t.Parallel()
	for f, want := range map[float64]string{
		0: "0", 1.5: "1.50", 99: "99", 100: "100", 1000: "1,000",
		1234567.8: "1,234,568", -1500: "-1,500", -2: "-2",
	} {
		require.Equal(t, want, thousands(f))
	}
	for micros, want := range map[float64]string{4: "0.00", 940: "0.94", 9_999: "10.00", 15_400: "15.4", 120_000: "120"} {
		require.Equal(t, want, millis(micros))
	}
	require.Equal(t, 2.0, median([]float64{3, 1, 2}))
	require.Equal(t, 1.5, median([]float64{2, 1}))
}
