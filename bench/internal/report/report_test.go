package report

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/bench/internal/load"
	"github.com/holdfast/holdfast/bench/internal/target"
	"github.com/holdfast/holdfast/bench/internal/workload"
)

var rewrite = flag.Bool("rewrite", false, "write testdata instead of comparing with it")

// someResult has three rounds of two targets. One target fails once.
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
	const golden = "testdata/result.md"
	if *rewrite {
		require.NoError(t, os.WriteFile(golden, b.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), b.String())
}

// Ratios are of the same round: when a machine is slow for one round, the ratio stands.
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

// The plot is well-formed, has a line for every target, and stays within its frame.
func TestSVG(t *testing.T) {
	t.Parallel()
	r := someResult()
	wl := workload.All()[0]
	require.False(t, r.Offered(wl))
	for i := range r.Runs {
		r.Runs[i].RatePerSecond = float64(r.Runs[i].Connections) * 100
	}
	require.True(t, r.Offered(wl))
	var b bytes.Buffer
	require.NoError(t, r.WriteSVG(&b, wl))
	require.NoError(t, xml.Unmarshal(b.Bytes(), new(struct{})))
	lines := regexp.MustCompile(`<polyline .* points="([^"]*)"`).FindAllStringSubmatch(b.String(), -1)
	require.Len(t, lines, 4)
	for _, line := range lines {
		for point := range strings.FieldsSeq(line[1]) {
			var x, y float64
			_, err := fmt.Sscanf(point, "%f,%f", &x, &y)
			require.NoError(t, err)
			require.GreaterOrEqual(t, x, float64(plotLeft))
			require.LessOrEqual(t, x, float64(plotLeft+plotInnerW))
			require.GreaterOrEqual(t, y, float64(plotTop))
			require.LessOrEqual(t, y, float64(plotTop+plotInnerH))
		}
	}
	r.Runs = nil
	require.ErrorContains(t, r.WriteSVG(&b, wl), "nothing was completed")
}

// Every plot that a result has is well-formed and has its lines.
func TestPlots(t *testing.T) {
	t.Parallel()
	r := someResult()
	growth, err := workload.Named("growth")
	require.NoError(t, err)
	long, err := workload.Named("long")
	require.NoError(t, err)
	require.Empty(t, r.Plots(growth))
	require.Empty(t, r.Plots(long))
	for round := range 2 {
		for _, held := range []int{10, 1_000_000} {
			f := &workload.Figures{Steps: map[string]load.Latency{"pair": {PerSecond: 100}}}
			r.Runs = append(r.Runs, Run{
				Point: Point{Workload: "growth", Target: "redis", Connections: 64, Held: held},
				Round: round, Figures: f,
			})
		}
		f := &workload.Figures{Series: map[string][]float64{
			"seconds": {1, 2, 3}, "pairs_per_second": {5, 6, 5},
			"disk_bytes": {0, 0, 0},
		}}
		r.Runs = append(r.Runs, Run{Point: Point{Workload: "long", Target: "holdfast"}, Round: round, Figures: f})
	}
	lines := func(p Plot) int {
		var b bytes.Buffer
		require.NoError(t, p.Write(&b))
		require.NoError(t, xml.Unmarshal(b.Bytes(), new(struct{})))
		return strings.Count(b.String(), "<polyline")
	}
	require.Len(t, r.Plots(growth), 1)
	require.Equal(t, 2, lines(r.Plots(growth)[0]), "a line a target")
	plots := r.Plots(long)
	require.Len(t, plots, 1, "what is zero all the time was not known")
	require.Equal(t, "long-pairs_per_second", plots[0].Name)
	require.Equal(t, 2, lines(plots[0]), "a line a round")
	require.ErrorContains(t, curves{title: "x"}.write(new(bytes.Buffer)), "plot x: nothing was measured")
}
