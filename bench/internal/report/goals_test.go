package report

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/bench/internal/load"
	"github.com/holdfast/holdfast/bench/internal/target"
	"github.com/holdfast/holdfast/bench/internal/workload"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// tableResult has a round for each factor, in which holdfast achieves that multiple of redis-always.
func tableResult(factors ...float64) *Result {
	r := &Result{
		Started: time.Date(2026, 11, 21, 6, 30, 0, 0, time.UTC),
		Machine: Machine{CPU: "Some CPU", CPUs: 4, Kernel: "6.1", Go: "go1.26", Revision: "abc"},
		Targets: []target.Target{
			{Name: "redis-always", About: "one redis-server"},
			{Name: "etcd", About: "three members"},
			{Name: "holdfast", About: "three nodes"},
		},
		Skipped: []string{"other cannot be started: no proxy\nwith a second line"},
	}
	add := func(round int, p Point, step string, rate, p50 float64) {
		r.Runs = append(r.Runs, Run{Point: p, Round: round, Figures: &workload.Figures{
			Steps:   map[string]load.Latency{step: {PerSecond: rate}, "acquire": {P50Micros: p50}},
			Numbers: map[string]float64{"window_seconds": 5, "server_cpu_seconds": 2},
		}})
	}
	r.Machine.Floors.AppendSyncMicros, r.Machine.Floors.RoundTripMicros = 100, 20
	for round, factor := range factors {
		for _, n := range []int{1, 64, 256} {
			at := func(name string) Point { return Point{Workload: "uncontended", Target: name, Connections: n} }
			add(round, at("redis-always"), "pair", 1000, 400)
			add(round, at("etcd"), "pair", 100, 4000)
			add(round, at("holdfast"), "pair", 1000*factor, 400/factor)
		}
	}
	return r
}

// once is a result of one workload that only gives numbers.
func once(name string, numbers map[string]map[string]float64) *Result {
	r := &Result{}
	for _, t := range []string{"redis", "etcd", "holdfast", "holdfast-debug"} {
		if n := numbers[t]; n != nil {
			r.Targets = append(r.Targets, target.Target{Name: t})
			r.Runs = append(r.Runs, Run{Point: Point{Workload: name, Target: t}, Figures: &workload.Figures{Numbers: n}})
		}
	}
	return r
}

func requireGoal(t *testing.T, e evidence, aim, measured, verdict string) {
	t.Helper()
	var b strings.Builder
	e.goalTable(&b, slices.Concat(goals(), nativeGoals()))
	e.besideTable(&b, slices.Concat(beside(), nativeBeside()))
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "| "+aim) {
			require.True(t, strings.HasSuffix(line, " | "+measured+" | "+verdict+" |\n"), line)
			return
		}
	}
	t.Fatalf("no goal begins with %q", aim)
}

func TestGoals(t *testing.T) {
	t.Parallel()
	const always, etcd = "pairs/s, 64 connections: at least `redis-always`", "pairs/s, 64 connections: at least 8 × `etcd`"
	e := evidence{tableResult(0.9, 1.1, 1.2)}
	requireGoal(t, e, always, "1.10 × (0.90 to 1.20), not in every round alike", "met")
	requireGoal(t, e, etcd, "11.00 × (9.00 to 12.00)", "met")
	requireGoal(t, e, "CPU of all nodes", "0.09 × (0.08 to 0.11)", "met")
	requireGoal(t, evidence{tableResult(0.5, 0.7, 1.2)}, always, "0.70 × (0.50 to 1.20), not in every round alike",
		"**not met**")
	requireGoal(t, evidence{tableResult(0.7)}, etcd, "7.00 ×", "**not met**")
	requireGoal(t, e, "an idle connection", "", "not measured")

	e = evidence{tableResult(1), once("memory", map[string]map[string]float64{
		"redis":          {"bytes_per_lock": 80},
		"holdfast-debug": {"bytes_per_lock": 251},
	})}
	requireGoal(t, e, "memory of a held lock", "251 bytes (`redis` 80 bytes)", "**not met**")
	e = evidence{once("failover", map[string]map[string]float64{
		"etcd":     {"median_ms": 1500},
		"holdfast": {"median_ms": 900},
	})}
	requireGoal(t, e, "failover by kill -9", "900 ms (`etcd` 1500 ms)", "met")
	e = evidence{once("failover", map[string]map[string]float64{"etcd": {"median_ms": 1500}})}
	requireGoal(t, e, "failover", "", "not measured")
	e = evidence{once("freeze", map[string]map[string]float64{"holdfast": {"median_ms": 1900}})}
	requireGoal(t, e, "failover by SIGSTOP", "1900 ms", "no aim")
	e = evidence{once("hang", map[string]map[string]float64{"holdfast-debug": {"median_ms": 10300}})}
	requireGoal(t, e, "failover when the leader's disk hangs", "10300 ms", "no aim")
	e = evidence{once("snapshot", map[string]map[string]float64{"holdfast-debug": {
		"p99_ms_leader": 5,
		"p99_ms_before": 2,
	}})}
	requireGoal(t, e, "p99 of an acquire while", "2.50 ×", "**not met**")

	busy := func(elections, minutes float64) evidence {
		return evidence{once("busy", map[string]map[string]float64{"holdfast": {"elections": elections, "minutes": minutes}})}
	}
	requireGoal(t, busy(0, 10), "no election", "0 in 10.0 minutes", "met")
	requireGoal(t, busy(0, 9), "no election", "0 in 9.0 minutes", "**not met**")
	requireGoal(t, busy(1, 10), "no election", "1 in 10.0 minutes", "**not met**")
}

func TestGoalsOfNativeLocks(t *testing.T) {
	t.Parallel()
	r := &Result{
		Targets: []target.Target{{Name: "holdfast-native"}, {Name: "holdfast"}},
		Machine: Machine{Revision: "abc"},
	}
	add := func(name, of string, connections int, step string, rate float64, numbers map[string]float64) {
		r.Runs = append(r.Runs, Run{
			Point:   Point{Workload: name, Target: of, Connections: connections},
			Figures: &workload.Figures{Steps: map[string]load.Latency{step: {PerSecond: rate}}, Numbers: numbers},
		})
	}
	add("uncontended", "holdfast-native", 1, "pair", 500, nil)
	add("uncontended", "holdfast", 1, "pair", 400, nil)
	add("uncontended", "holdfast-native", 16, "pair", 1000, nil)
	add("contended", "holdfast-native", 256, "pair", 790, nil)
	add("hot", "holdfast-native", 64, "handoff", 950, map[string]float64{
		"log_entries_each": 1.05, "longest_by_mean": 1.6, "server_cpu_seconds": 1, "window_seconds": 1,
	})
	add("hot", "holdfast", 64, "handoff", 100, map[string]float64{"server_cpu_seconds": 1, "window_seconds": 1})
	e := evidence{r}
	requireGoal(t, e, "native locks, nobody waits, 1 connection", "1.25 ×", "met")
	requireGoal(t, e, "native hot lock, 64 waiters: at least 0.9 hand-offs", "0.95 ×", "met")
	requireGoal(t, e, "native hot lock, 64 waiters: at most 1.1 log entries", "1.05", "met")
	requireGoal(t, e, "native hot lock, 64 waiters: CPU of all nodes", "0.11 ×", "met")
	requireGoal(t, e, "native hot lock, 64 waiters: the longest wait", "1.60", "**not met**")
	requireGoal(t, e, "16 native hot locks", "0.79 ×", "**not met**")
	requireGoal(t, e, "a held native lock", "", "not measured")
	text := Native([]*Result{r})
	require.Contains(t, text, "\n| `holdfast` | 1.25 |")
	require.Contains(t, text, "| 1.05 | 1.60 |")
}

// TestLibraries: a library is compared with Holdfast's of the same language, round by round.
func TestLibraries(t *testing.T) {
	t.Parallel()
	r := &Result{Skipped: []string{"python-kazoo cannot be started: it needs java\nmore"}}
	for _, name := range []string{"go-holdfast", "go-etcd", "python-asyncio", "python-holdfast"} {
		r.Targets = append(r.Targets, target.Target{Name: name, About: "about"})
	}
	add := func(of string, round int, handoffs float64) {
		r.Runs = append(r.Runs, Run{
			Point: Point{Workload: "hot", Target: of, Connections: 64}, Round: round,
			Figures: &workload.Figures{Steps: map[string]load.Latency{"handoff": {PerSecond: handoffs}}},
		})
	}
	for round, factor := range []float64{1, 2, 4} {
		add("go-holdfast", round, 600*factor)
		add("go-etcd", round, 200*factor)
		add("python-holdfast", round, 50)
		add("python-asyncio", round, 100)
	}
	text := Libraries(r)
	require.Contains(t, text, "\n| `go-holdfast`: about | 1,200 ±75% | - | - | - |\n")
	require.Contains(t, text, "\n| `go-etcd`: about | 400 ±75% | 3.00 | - | - |\n")
	require.Contains(t, text, "\n| `python-asyncio`: about | 100 ±0% | 0.50 | - | - |\n")
	require.Contains(t, text, "- left out: python-kazoo cannot be started: it needs java\n")
}

// TestGoalsOfWaiting: hand-offs by BLPOP are compared with those by etcd's mutex, another workload, in the same round.
func TestGoalsOfWaiting(t *testing.T) {
	t.Parallel()
	r := &Result{Targets: []target.Target{{Name: "holdfast"}, {Name: "etcd-mutex"}}}
	add := func(round int, name, of string, rate float64) {
		r.Runs = append(r.Runs, Run{
			Point: Point{Workload: name, Target: of, Connections: 64}, Round: round,
			Figures: &workload.Figures{
				Steps:   map[string]load.Latency{"handoff": {PerSecond: rate}},
				Numbers: map[string]float64{"server_cpu_seconds": 1, "window_seconds": 1},
			},
		})
	}
	const aim, cpu = "BLPOP hand-offs, 64 waiters: at least 3", "BLPOP hand-offs, 64 waiters: CPU"
	add(0, "handoffs", "holdfast", 290)
	requireGoal(t, evidence{r}, aim, "", "not measured")
	add(1, "hot", "etcd-mutex", 10)
	requireGoal(t, evidence{r}, aim, "", "not measured")
	add(0, "hot", "etcd-mutex", 100)
	requireGoal(t, evidence{r}, aim, "2.90 ×", "**not met**")
	requireGoal(t, evidence{r}, cpu, "0.34 ×", "no aim")
	add(1, "handoffs", "holdfast", 40)
	requireGoal(t, evidence{r}, aim, "3.45 × (2.90 to 4.00), not in every round alike", "met")

	e := evidence{once("parked", map[string]map[string]float64{"redis": {
		"bytes_per_connection":    9000,
		"idle_cpu_percent_of_one": 0.1,
	}, "holdfast": {"bytes_per_connection": 8000, "idle_cpu_percent_of_one": 0.25}})}
	requireGoal(t, e, "10,000 clients parked by BLPOP: memory", "8000 bytes (`redis` 9000 bytes)", "no aim")
	requireGoal(t, e, "10,000 clients parked by BLPOP: CPU", "0.2 % (`redis` 0.1 %)", "no aim")
}

func TestGoalOfGrowth(t *testing.T) {
	t.Parallel()
	r := &Result{Targets: []target.Target{{Name: "holdfast"}}}
	for held, rate := range map[int]float64{10: 1000, 1000: 5000, 1_000_000: 790} {
		r.Runs = append(r.Runs, Run{
			Point:   Point{Workload: "growth", Target: "holdfast", Connections: 64, Held: held},
			Figures: &workload.Figures{Steps: map[string]load.Latency{"pair": {PerSecond: rate}}},
		})
	}
	requireGoal(t, evidence{r}, "pairs/s beside 10⁶ held locks", "0.79 ×", "**not met**")
	requireGoal(t, evidence{r}, "pairs/s over a long run", "", "not measured")
}

func TestSummary(t *testing.T) {
	t.Parallel()
	text := Summary([]*Result{tableResult(0.9, 1.1, 1.2)})
	require.Equal(t, protocoltest.Golden(t, "testdata/summary.md", text), text)

	limits := &Result{
		Command: "go run ./bench --preset limits", Started: time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC),
		Machine: Machine{Revision: "abc"},
	}
	text = Summary([]*Result{tableResult(0.9, 1.1, 1.2), limits})
	require.Contains(t, text, "by `go run ./bench --preset limits` (revision abc, 2026-11-22);")
}

// TestServersApart: each distance and number of connections has a row with etcd's figures, and the worst is judged.
func TestServersApart(t *testing.T) {
	t.Parallel()
	r := &Result{Targets: []target.Target{{Name: "holdfast"}, {Name: "etcd"}}}
	add := func(of string, connections int, rate, p50 float64) {
		r.Runs = append(r.Runs, Run{
			Point: Point{Workload: "uncontended", Target: of, Connections: connections, RoundTrip: 10 * time.Millisecond},
			Figures: &workload.Figures{Steps: map[string]load.Latency{
				"pair": {PerSecond: rate}, "acquire": {P50Micros: p50, P99Micros: 20_000},
			}},
		})
	}
	add("holdfast", 1, 50, 11_000)
	add("holdfast", 64, 2000, 14_100)
	add("etcd", 64, 1000, 15_000)
	requireGoal(t, evidence{r}, "servers apart", "1.41 (10ms apart, 64 connections)", "**not met**")
	requireGoal(t, evidence{tableResult(1)}, "servers apart", "", "not measured")
	text := Summary([]*Result{tableResult(1), r})
	require.Contains(t, text, "\n| 10ms apart, 1 connection | 50 | 11.0 | 1.10 | 20.0 | - | - |\n")
	require.Contains(t, text, "\n| 10ms apart, 64 connections | 2,000 | 14.1 | 1.41 | 20.0 | 1,000 (15.0) | 2.00 |\n")
}

// TestBesideNeighbours: each neighbour has a row, and the worst is judged.
func TestBesideNeighbours(t *testing.T) {
	t.Parallel()
	r := once("beside", map[string]map[string]float64{"holdfast": {
		"hsets_p99_ratio": 4, "hsets_per_second": 300, "hsets_refused_per_second": 2, "steps_p99_ratio": 3,
	}})
	r.Runs[0].Figures.Steps = map[string]load.Latency{"hsets": {PerSecond: 70, P50Micros: 2000, P99Micros: 9000}}
	requireGoal(t, evidence{r}, "beside a neighbour", "4.00 × (hsets)", "met")
	requireGoal(t, evidence{tableResult(1)}, "beside a neighbour", "", "not measured")
	text := Summary([]*Result{tableResult(1), r})
	require.Contains(t, text, "\n| hsets | 70 | 2.00 | 9.00 | 4 | 300 | 2 |\n")
	require.Contains(t, text, "\nElections in a round meanwhile: 0.\n")
}

func TestRewrite(t *testing.T) {
	t.Parallel()
	got, err := Rewrite("a\n<!-- performance -->\nold\n<!-- /performance -->\nb\n", Performance, "new\n")
	require.NoError(t, err)
	require.Equal(t, "a\n<!-- performance -->\nnew\n<!-- /performance -->\nb\n", got)
	_, err = Rewrite("a\n<!-- performance -->\nb\n", Performance, "new\n")
	require.EqualError(t, err, "there is no <!-- performance --> … <!-- /performance -->")
	_, err = Rewrite(got, NativeLocks, "new\n")
	require.ErrorContains(t, err, "<!-- native -->")
}
