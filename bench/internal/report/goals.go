package report

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/bench/internal/load"
	"github.com/holdfast/holdfast/bench/internal/workload"
)

// goal is an aim of Holdfast's performance.
type goal struct {
	aim   string
	judge judge
}

// judge returns the measured figure, and whether it meets the goal. ok is false if nothing was measured.
type judge func(evidence) (measured string, met, ok bool)

// evidence has the results by which goals are judged.
type evidence []*Result

// goals are the performance goals, in the order of the promises.
func goals() []goal {
	const one = "uncontended"
	return []goal{
		{"pairs/s, 64 connections: at least `redis-always`", atLeast(1, one, 64, 0, "holdfast", "redis-always")},
		{"pairs/s, 256 connections: at least `redis-always`", atLeast(1, one, 256, 0, "holdfast", "redis-always")},
		{"pairs/s, 64 connections: at least 8 × `etcd`", atLeast(8, one, 64, 0, "holdfast", "etcd")},
		{"pairs/s, 256 connections: at least 8 × `etcd`", atLeast(8, one, 256, 0, "holdfast", "etcd")},
		{"one connection, p50 of an acquire: below `redis-wait`", acquireBelow(1, 1, "holdfast", "redis-wait")},
		{"hot lock, 64 waiters: at least 4 × the hand-offs of `etcd-mutex`", atLeast(4, "hot", 64, 0, "holdfast",
			"etcd-mutex")},
		{"pipelined SET NX PX, depth 16: at least half of `redis`", atLeast(0.5, "pipelined", 50, 16, "holdfast", "redis")},
		{"pipelined SET NX PX, depth 64: at least half of `redis`", atLeast(0.5, "pipelined", 50, 64, "holdfast", "redis")},
		{"GET on the leader, 256 connections: at least 0.7 × `redis`", atLeast(0.7, "reads", 256, 0, "holdfast", "redis")},
		{
			"through a follower, 64 connections: at least 0.7 × the leader's pairs/s",
			atLeast(0.7, one, 64, 0, "holdfast-followers", "holdfast"),
		},
		{
			"through a follower, 256 connections: at least 0.7 × the leader's pairs/s",
			atLeast(0.7, one, 256, 0, "holdfast-followers", "holdfast"),
		},
		{
			"through a follower, 64 connections, p50 of an acquire: at most 1.5 × the leader's",
			acquireBelow(1.5, 64, "holdfast-followers", "holdfast"),
		},
		{"CPU of all nodes per pair, 256 connections: at most a quarter of `etcd`'s", cpuBelow(0.25, 256, "holdfast",
			"etcd")},
		{"CPU of all nodes per pair, 1 connection: at most 1.1 × `redis-wait`'s", cpuBelow(1.1, 1, "holdfast",
			"redis-wait")},
		{"CPU of all nodes per pair, 64 connections: at most 1.2 × `redis-wait`'s", cpuBelow(1.2, 64, "holdfast",
			"redis-wait")},
		{"CPU of all nodes per pair, 256 connections: at most 1.2 × `redis-wait`'s", cpuBelow(1.2, 256, "holdfast",
			"redis-wait")},
		{"memory of a held lock, over key and value: at most 250 bytes a node", number("memory", "bytes_per_lock",
			"%.0f bytes", 250)},
		{"an idle connection: at most 12 KB", number("idle", "bytes_per_connection", "%.0f bytes", 12<<10)},
		{"p99 of an acquire while the leader takes snapshots: at most 2 × before", quotient("snapshot", "p99_ms_leader",
			"p99_ms_before", 2)},
		{"restart with a million locks: under 5 s", number("restart", "serves_after_seconds", "%.1f s", 5)},
		{"failover by kill -9 until the first acquire: median below 1 s", number("failover", "median_ms", "%.0f ms", 1000)},
		{"no election in 10 minutes with all cores busy", noElections},
		{"pairs/s beside 10⁶ held locks: at least 0.8 × beside 10", flat},
		{"pairs/s over a long run: last quarter at least 0.8 × the first", lasting},
		{"servers apart: p50 of an acquire at most 1.25 round trips, at worst", roundTrips(1.25)},
		{"beside a neighbour: p99 of an acquire at most 5 × alone, at worst", undisturbed(5)},
	}
}

// roundTrips judges the slowest median of an acquire, in round trips between the servers.
func roundTrips(atMost float64) judge {
	return func(e evidence) (text string, met, ok bool) {
		worst := 0.0
		for _, r := range e {
			for p, acquire := range r.distances() {
				if trips := tripsOf(p, acquire); trips > worst {
					worst, text, ok = trips, fmt.Sprintf("%.2f (%s)", trips, p.Title()), true
				}
			}
		}
		return text, worst <= atMost, ok
	}
}

// distances yields Holdfast's acquires at each round trip between the servers.
func (r *Result) distances() iter.Seq2[Point, load.Latency] {
	wl, _ := workload.Named("uncontended")
	return func(yield func(Point, load.Latency) bool) {
		for _, p := range r.columns(wl) {
			p.Target = nodes[0]
			if f := r.median(p); p.RoundTrip > 0 && f != nil && !yield(p, f.Steps[latencyStep(wl)]) {
				return
			}
		}
	}
}

// tripsOf returns the median of an acquire in round trips.
func tripsOf(p Point, acquire load.Latency) float64 {
	return acquire.P50Micros / float64(p.RoundTrip.Microseconds())
}

// undisturbed judges the largest p99 with a neighbour, relative to the p99 without one.
func undisturbed(atMost float64) judge {
	return func(e evidence) (text string, met, ok bool) {
		worst := 0.0
		for _, name := range workload.Neighbours() {
			if v := e.numbers("beside", name+"_p99_ratio")[nodes[0]]; v > worst {
				worst, text, ok = v, fmt.Sprintf("%.2f × (%s)", v, name), true
			}
		}
		return text, worst <= atMost, ok
	}
}

// nativeGoals are the goals of native locks.
func nativeGoals() []goal {
	const native = "holdfast-native"
	return []goal{
		{"native locks, nobody waits, 1 connection: at least the pairs/s of SET NX PX", atLeast(1, "uncontended", 1, 0,
			native, "holdfast")},
		{"native locks, nobody waits, 64 connections: at least the pairs/s of SET NX PX", atLeast(1, "uncontended", 64, 0,
			native, "holdfast")},
		{"native locks, nobody waits, 256 connections: at least the pairs/s of SET NX PX", atLeast(1, "uncontended", 256, 0,
			native, "holdfast")},
		{
			"native hot lock, 64 waiters: at least 0.9 hand-offs for each command that one connection alone gets answered",
			perCommand(0.9, native),
		},
		{"native hot lock, 64 waiters: at least 8 × the hand-offs of `etcd-mutex`", atLeast(8, "hot", 64, 0, native,
			"etcd-mutex")},
		{"native hot lock, 64 waiters: at most 1.1 log entries a hand-off", numberAt("hot", 64, "log_entries_each", native,
			1.1)},
		{
			"native hot lock, 64 waiters: CPU of all nodes a hand-off at most a quarter of polling's",
			cpuOf(0.25, "hot", 64, native, "holdfast"),
		},
		{"native hot lock, 64 waiters: the longest wait at most 1.5 × the mean", numberAt("hot", 64, "longest_by_mean",
			native, 1.5)},
		{
			"16 native hot locks, 256 workers: at least 0.8 × the pairs/s of 16 connections that nobody disturbs",
			apart(0.8, native, series{"contended", 256, 1}, series{"uncontended", 16, 1}),
		},
		{"BLPOP hand-offs, 64 waiters: at least 3 × the hand-offs of `etcd-mutex`", across(3, rateOf)},
		{"a held native lock, over key and owner: at most 350 bytes a node", numberOf("memory", "bytes_per_lock", native,
			"%.0f bytes", 350)},
		{"a waiter in line: at most 500 bytes on a node that it is not connected to", numberOf("parked", "bytes_elsewhere",
			native, "%.0f bytes", 500)},
	}
}

// numberAt judges a number of the runs at a point.
func numberAt(name string, connections int, number, of string, atMost float64) judge {
	return func(e evidence) (string, bool, bool) {
		for _, r := range e {
			var all []float64
			for _, f := range r.at(Point{Workload: name, Target: of, Connections: connections}) {
				if v, ok := f.Numbers[number]; ok {
					all = append(all, v)
				}
			}
			if s, ok := spreadOf(all); ok {
				return strings.ReplaceAll(s.String(), " ×", ""), s.median <= atMost, true
			}
		}
		return "", false, false
	}
}

// numberOf judges a number of a workload that runs once, for one target.
func numberOf(name, number, of, format string, atMost float64) judge {
	return func(e evidence) (string, bool, bool) {
		v, ok := e.numbers(name, number)[of]
		return fmt.Sprintf(format, v), v <= atMost, ok
	}
}

// across judges the quotient of Holdfast's hand-offs by BLPOP and the hand-offs of etcd's mutex. Both are of one round,
// and among 64 clients.
func across(aim float64, of measure) judge {
	queue := Point{Workload: "handoffs", Target: "holdfast", Connections: 64}
	mutex := Point{Workload: "hot", Target: "etcd-mutex", Connections: 64}
	return quotientAtLeast(aim, queue, mutex, figureOf(queue.Workload, of), figureOf(mutex.Workload, of))
}

func rateOf(wl workload.Workload, f *workload.Figures) (float64, bool) { return RateOf(wl, f), true }

// perCommand compares hand-offs with the commands of a single connection, two for each pair.
func perCommand(aim float64, of string) judge {
	const commands = 2
	return apart(aim, of, series{"hot", 64, 1}, series{"uncontended", 1, commands})
}

// series is a workload at a number of connections, with the weight of each of its steps.
type series struct {
	name        string
	connections int
	each        float64
}

func (s series) at(target string) Point {
	return Point{Workload: s.name, Target: target, Connections: s.connections}
}

func (s series) rate() figure {
	return figureOf(s.name, func(wl workload.Workload, f *workload.Figures) (float64, bool) {
		return RateOf(wl, f) * s.each, true
	})
}

// apart compares two workloads of one target in the same rounds.
func apart(aim float64, of string, a, base series) judge {
	return quotientAtLeast(aim, a.at(of), base.at(of), a.rate(), base.rate())
}

// nativeBeside returns the figures without a goal to show after the goals of native locks.
func nativeBeside() []goal {
	const parked = "10,000 clients parked by BLPOP: "
	return []goal{
		{"BLPOP hand-offs, 64 waiters: CPU of all nodes a hand-off, by the CPU of `etcd-mutex`", across(0, cpuPerThousand)},
		{parked + "memory of all nodes for each", number("parked", "bytes_per_connection", "%.0f bytes", math.Inf(1))},
		{parked + "CPU of all nodes while nothing is said, of one core", number("parked", "idle_cpu_percent_of_one",
			"%.1f %%", math.Inf(1))},
	}
}

// beside returns the figures without a goal to show after the goals.
func beside() []goal {
	return []goal{
		{"failover by SIGSTOP of the leader, when nothing but silence tells", number("freeze", "median_ms", "%.0f ms",
			math.Inf(1))},
		{"failover when the leader's disk hangs, by `--disk-stall-limit`", number("hang", "median_ms", "%.0f ms",
			math.Inf(1))},
	}
}

// nodes are the names of Holdfast's target; the first one measured counts.
var nodes = []string{"holdfast", "holdfast-debug"}

// spread has the median and the range of quotients.
type spread struct{ median, low, high float64 }

func spreadOf(all []float64) (spread, bool) {
	if len(all) == 0 {
		return spread{}, false
	}
	slices.Sort(all)
	return spread{median(slices.Clone(all)), all[0], all[len(all)-1]}, true
}

func (s spread) String() string {
	f := func(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
	if s.low == s.high {
		return f(s.median) + " ×"
	}
	return fmt.Sprintf("%s × (%s to %s)", f(s.median), f(s.low), f(s.high))
}

// against formats a spread with its goal.
func (s spread) against(aim float64) string {
	if s.low < aim && aim < s.high {
		return s.String() + ", not in every round alike"
	}
	return s.String()
}

// figure returns a figure of a run; ok is false if it has none.
type figure func(*workload.Figures) (v float64, ok bool)

// figureOf is a figure of runs of one workload.
func figureOf(name string, of measure) figure {
	wl, _ := workload.Named(name)
	return func(f *workload.Figures) (float64, bool) { return of(wl, f) }
}

// by returns the same point for another target.
func (p Point) by(target string) Point {
	p.Target = target
	return p
}

// quotients returns the quotients of two figures, of p and of base, in each round that has both.
func (e evidence) quotients(p, base Point, of, by figure) (spread, bool) {
	for _, r := range e {
		bases := r.at(base)
		var all []float64
		for round, f := range r.at(p) {
			if bases[round] == nil {
				continue
			}
			a, ok := of(f)
			b, baseOK := by(bases[round])
			if ok && baseOK && b > 0 {
				all = append(all, a/b)
			}
		}
		if s, ok := spreadOf(all); ok {
			return s, true
		}
	}
	return spread{}, false
}

// quotientAtLeast judges whether the quotient of two figures is at least aim.
func quotientAtLeast(aim float64, p, base Point, of, by figure) judge {
	return func(e evidence) (string, bool, bool) {
		s, ok := e.quotients(p, base, of, by)
		return s.against(aim), s.median >= aim, ok
	}
}

// quotientAtMost judges whether the quotient of two targets' figure is at most aim.
func quotientAtMost(aim float64, p Point, base string, of figure) judge {
	return func(e evidence) (string, bool, bool) {
		s, ok := e.quotients(p, p.by(base), of, of)
		return s.against(aim), s.median <= aim, ok
	}
}

func atLeast(aim float64, name string, connections, depth int, of, base string) judge {
	p := Point{Workload: name, Target: of, Connections: connections, Depth: depth}
	return quotientAtLeast(aim, p, p.by(base), figureOf(name, rateOf), figureOf(name, rateOf))
}

func acquireBelow(aim float64, connections int, of, base string) judge {
	p := Point{Workload: "uncontended", Target: of, Connections: connections}
	acquire := func(f *workload.Figures) (float64, bool) { return f.Steps["acquire"].P50Micros, true }
	return quotientAtMost(aim, p, base, acquire)
}

func cpuBelow(aim float64, connections int, of, base string) judge {
	return cpuOf(aim, "uncontended", connections, of, base)
}

func cpuOf(aim float64, name string, connections int, of, base string) judge {
	p := Point{Workload: name, Target: of, Connections: connections}
	return quotientAtMost(aim, p, base, figureOf(name, cpuPerThousand))
}

// numbers returns a number of a workload that runs once, by target.
func (e evidence) numbers(name, of string) map[string]float64 {
	all := make(map[string]float64)
	for _, r := range e {
		for _, t := range r.Targets {
			if f := r.median(Point{Workload: name, Target: t.Name}); f != nil {
				if v, ok := f.Numbers[of]; ok {
					all[t.Name] = v
				}
			}
		}
	}
	return all
}

// own removes Holdfast's number from all. It returns the number, and a text with the others.
func own(all map[string]float64, format string) (v float64, text string, ok bool) {
	for _, name := range nodes {
		if v, ok = all[name]; ok {
			text = fmt.Sprintf(format, v)
			delete(all, name)
			break
		}
	}
	var others []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		others = append(others, "`"+name+"` "+fmt.Sprintf(format, all[name]))
	}
	if len(others) > 0 {
		text += " (" + strings.Join(others, ", ") + ")"
	}
	return v, text, ok
}

func number(name, of, format string, atMost float64) judge {
	return func(e evidence) (string, bool, bool) {
		v, text, ok := own(e.numbers(name, of), format)
		return text, v <= atMost, ok
	}
}

func quotient(name, of, by string, atMost float64) judge {
	return func(e evidence) (string, bool, bool) {
		all := e.numbers(name, of)
		for target, base := range e.numbers(name, by) {
			all[target] /= base
		}
		v, text, ok := own(all, "%.2f ×")
		return text, v <= atMost, ok
	}
}

// enoughMinutes is the minimum duration of a run on a busy machine.
const enoughMinutes = 10

func noElections(e evidence) (string, bool, bool) {
	elections, text, ok := own(e.numbers("busy", "elections"), "%.0f")
	minutes, _, _ := own(e.numbers("busy", "minutes"), "%.1f")
	return fmt.Sprintf("%s in %.1f minutes", text, minutes), elections == 0 && minutes >= enoughMinutes, ok
}

// flat compares the run with the most held locks to the one with the fewest, by target.
func flat(e evidence) (string, bool, bool) {
	wl, _ := workload.Named("growth")
	all := make(map[string]float64)
	for _, r := range e {
		columns := r.columns(wl)
		if len(columns) < 2 {
			continue
		}
		byHeld := func(a, b Point) int { return a.Held - b.Held }
		few, many := slices.MinFunc(columns, byHeld), slices.MaxFunc(columns, byHeld)
		for _, t := range r.Targets {
			few.Target, many.Target = t.Name, t.Name
			a, b := r.median(many), r.median(few)
			if a != nil && b != nil && RateOf(wl, b) > 0 {
				all[t.Name] = RateOf(wl, a) / RateOf(wl, b)
			}
		}
	}
	v, text, ok := own(all, "%.2f ×")
	return text, v >= 0.8, ok
}

func lasting(e evidence) (string, bool, bool) {
	v, text, ok := own(e.numbers("long", "last_quarter_by_first"), "%.2f ×")
	return text, v >= 0.8, ok
}

// goalTable writes each goal, its measured value, and whether it is met.
func (e evidence) goalTable(b *strings.Builder, goals []goal) {
	b.WriteString("\n| target | measured | |\n|---|---|---|\n")
	for _, g := range goals {
		measured, met, ok := g.judge(e)
		verdict := "**not met**"
		switch {
		case !ok:
			measured, verdict = "", "not measured"
		case met:
			verdict = "met"
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", g.aim, measured, verdict)
	}
}

// besideTable writes the measured figures without a goal.
func (e evidence) besideTable(b *strings.Builder, goals []goal) {
	for _, g := range goals {
		if measured, _, ok := g.judge(e); ok {
			fmt.Fprintf(b, "| %s | %s | no aim |\n", g.aim, measured)
		}
	}
}
