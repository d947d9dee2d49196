// Package workload generates load for a target: pairs of acquire and release, waits for a hot lock, reads, pipelines, a
// million held locks, and more.
//
// It promises that two targets get the same work: keys, sizes, the order of steps and pauses depend only on the
// workload. A lock that cannot be released, or is not free although no other client wants it, is an error of the run.
// Mutual exclusion is not tested here, but by package jepsen.
//
// Start reading at [All].
package workload

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/bench/internal/load"
	"github.com/holdfast/holdfast/bench/internal/target"
)

// Control starts and stops the processes of a target; nil if they are not ours.
type Control interface {
	// Kill kills the server that listens at addr.
	Kill(addr string) error
	// Empty removes a killed server's data.
	Empty(addr string) error
	// Start restarts the server on its data.
	Start(ctx context.Context, addr string) error
	// Freeze stops the server like a hanging machine, with its connections open. Thaw resumes it.
	Freeze(addr string) error
	Thaw(addr string) error
	// Ready waits until all servers take part.
	Ready(ctx context.Context) error
}

// Sizes are the sizes of workloads.
type Sizes struct {
	Keys     int           // of uncontended and reads
	Shared   int           // of contended workers
	Depth    int           // commands in a pipeline
	Locks    int           // held by memory, snapshot and restart
	Idle     int           // connections that idle, wait or have a session
	Sessions int           // sessions to keep alive
	Failover int           // kills
	Poll     time.Duration // between two attempts for a held lock
	Steady   float64       // offered pairs a second while snapshots are taken
}

// Env is the environment of a run.
type Env struct {
	Target        target.Target
	Control       Control
	Client        target.Options
	Connections   int
	RatePerSecond float64
	// Held is the number of held locks besides the workload's own.
	Held    int
	Warmup  time.Duration
	Measure time.Duration
	Sizes   Sizes
}

// Figures are the results of a run.
type Figures struct {
	// Steps are latencies by step.
	Steps map[string]load.Latency `json:"steps,omitempty"`
	// Numbers are all other figures; their names end with the unit.
	Numbers map[string]float64 `json:"numbers,omitempty"`
	// Series are numbers over time, all of equal length.
	Series map[string][]float64 `json:"series,omitempty"`
	// Errors are counts by text.
	Errors map[string]int64 `json:"errors,omitempty"`
}

// Workload is a row of [All].
type Workload struct {
	Name  string
	About string
	// Step is the step of [Figures.Steps] whose rate tables show.
	Step string
	// Latency is the step whose latencies tables show next to the rate; "" is Step.
	Latency string
	// Batch: a step is a batch of commands; tables show the number commands_per_second.
	Batch bool
	// Once: the workload depends neither on the number of connections nor on the rate, and only gives numbers.
	Once bool
	// Reads: the workload reads keys written before.
	Reads bool
	// Holds: the workload runs for several numbers of held locks.
	Holds bool
	// RESP: the workload needs servers that speak RESP.
	RESP bool
	// Native: the workload has native locks only.
	Native bool
	// Users: the workload needs the users of flood.
	Users bool
	// Fresh: servers are restarted empty before the workload if possible, since memory that a process has freed, or
	// needed to read its log, hides how much it needs.
	Fresh bool
	// Control: the workload kills and starts servers.
	Control bool
	// Failover: the workload needs servers with failover.
	Failover bool
	Run      func(ctx context.Context, e Env) (*Figures, error)
}

// All are the workloads.
func All() []Workload {
	return append([]Workload{
		{
			Name: "uncontended", Step: "pair", Latency: "acquire", Run: uncontended,
			About: "acquire and release a lock that nobody else wants: SET NX PX, then compare-and-delete by EVALSHA",
		},
		{
			Name: "contended", Step: "pair", Latency: "acquire", Run: contended,
			About: "acquire and release one of few locks that all workers want, polling while somebody has it",
		},
		{
			Name: "hot", Step: "handoff", Latency: "acquire", Run: hot,
			About: "all workers poll for one lock, and stand back for one pause when they have had it; a hand-off is an acquire by another than the last holder",
		},
		{
			Name: "renewals", Step: "renew", Run: renewals,
			About: "every worker keeps one lock and extends it: compare-and-expire by EVALSHA",
		},
		{
			Name: "reads", Reads: true, Step: "get", Run: reads,
			About: "GET of keys that exist",
		},
		{
			Name: "pipelined", RESP: true, Step: "batch", Batch: true, Run: pipelined,
			About: "SET NX PX of random keys in pipelines, without a client library",
		},
		{
			Name: "memory", RESP: true, Fresh: true, Once: true, Run: memory,
			About: "what a held lock takes in each server process, over the bytes of its key and token",
		},
		{
			Name: "snapshot", RESP: true, Once: true, Run: snapshot,
			About: "pairs at a fixed rate, many locks held: before, while the leader takes snapshots, and while all servers do",
		},
		{
			Name: "restart", RESP: true, Once: true, Control: true, Run: restart,
			About: "kill -9 of all servers with many locks held, from their start until the first acquire is acknowledged",
		},
		{
			Name: "growth", Step: "pair", Latency: "acquire", RESP: true, Holds: true, Run: growth,
			About: "acquire and release beside a number of locks that are held",
		},
		{
			Name: "long", Once: true, Run: long,
			About: "acquire and release by 64 connections for the whole window, as a curve over time",
		},
		{
			Name: "busy", Once: true, Failover: true, Run: busy,
			About: "acquire and release while other processes keep all cores busy: elections, though no server dies",
		},
		{
			Name: "idle", RESP: true, Fresh: true, Once: true, Run: idle,
			About: "what a connection that says nothing takes in memory, and all of them in CPU",
		},
		{
			Name: "handoffs", RESP: true, Step: "handoff", Run: handoffs,
			About: "all workers wait for one element by BLPOP, and put it back",
		},
		{
			Name: "publish", RESP: true, Step: "publish", Run: publish,
			About: "one PUBLISH after another to as many subscribers as there are connections; the next when all have the last",
		},
		{
			Name: "parked", RESP: true, Fresh: true, Once: true, Run: parked,
			About: "what a connection takes that waits by BLPOP, or in line for a native lock, and all of them in CPU",
		},
		{
			Name: "native-sessions", RESP: true, Native: true, Fresh: true, Once: true, Run: sessions,
			About: "many sessions that hold a lock each and are kept alive by SESSION.KEEPALIVE: CPU, log entries and memory",
		},
		{
			Name: "native-connections", RESP: true, Native: true, Fresh: true, Once: true, Run: bound,
			About: "connections with a session of their own that holds a lock: CPU, log entries and memory while nothing is said",
		},
		{
			Name: "beside", RESP: true, Once: true,
			Run:   func(ctx context.Context, e Env) (*Figures, error) { return beside(ctx, e, neighbours) },
			About: "acquires alone, and beside neighbours: pipelines, scripts, large values, joins of a queue, leases that end",
		},
		{
			Name: "flood", RESP: true, Users: true, Once: true,
			Run:   func(ctx context.Context, e Env) (*Figures, error) { return beside(ctx, e, floods) },
			About: "acquires alone, beside a user's flood of SET in pipelines, and beside the same with a limit of commands a second",
		},
	}, failures()...)
}

// failures are the workloads that disable the leader.
func failures() []Workload {
	return []Workload{
		{
			Name: "failover", Once: true, Control: true, Failover: true, Run: failover,
			About: "kill -9 of the leader until the first acquire is acknowledged anywhere",
		},
		{
			Name: "freeze", Once: true, Control: true, Failover: true, Run: freeze,
			About: "SIGSTOP of the leader, whose connections stay open, until the first acquire is acknowledged anywhere",
		},
		{
			Name: "hang", Once: true, Control: true, Failover: true, Run: hang,
			About: "the leader's disk hangs, until the first acquire is acknowledged by another server",
		},
	}
}

// Named returns the workload with a name.
func Named(name string) (Workload, error) {
	all := All()
	i := slices.IndexFunc(all, func(w Workload) bool { return w.Name == name })
	if i < 0 {
		return Workload{}, fmt.Errorf("there is no workload %q, but %s", name, strings.Join(Names(), ", "))
	}
	return all[i], nil
}

// Names returns the names of [All].
func Names() []string {
	var names []string
	for _, w := range All() {
		names = append(names, w.Name)
	}
	return names
}

// Suits reports whether the workload is meaningful for a target. One server of a Redlock promises nothing, so no client
// reads or pipelines there.
func (w Workload) Suits(t target.Target) bool {
	if w.Users && !t.Users {
		return false
	}
	if w.Native && t.Form != target.Native {
		return false
	}
	if t.Via == target.ViaRedlock {
		return !w.RESP && !w.Reads
	}
	return !w.RESP || t.Kind == target.RESP
}

// loop runs an op for each client, in the loop of e.
func loop(ctx context.Context, e Env, op func(worker int, c target.Client) load.Op) (*Figures, error) {
	clients, err := e.Target.Clients(ctx, e.Connections, e.Client)
	if err != nil {
		return nil, err
	}
	defer target.CloseAll(clients)
	ops := make([]load.Op, len(clients))
	for i, c := range clients {
		ops[i] = op(i, c)
	}
	return measure(ctx, e, ops)
}

// measure runs ops and adds the servers' usage.
func measure(ctx context.Context, e Env, ops []load.Op) (*Figures, error) {
	m := newMeter(e)
	s, err := load.Run(ctx, load.Config{
		Warmup: e.Warmup, Measure: e.Measure, RatePerSecond: e.RatePerSecond, Begin: m.begin, End: m.end,
	}, ops)
	if err != nil {
		return nil, err
	}
	f := &Figures{Steps: s.Steps, Numbers: m.numbers(), Errors: s.Errors}
	f.Numbers["window_seconds"] = e.Measure.Seconds()
	for what, n := range s.Counts {
		f.Numbers[what+"_per_second"] = float64(n) / e.Measure.Seconds()
	}
	if len(f.Errors) == 0 {
		f.Errors = nil
	}
	return f, nil
}

// merge adds numbers to f.
func (f *Figures) merge(numbers map[string]float64) {
	if f.Numbers == nil {
		f.Numbers = make(map[string]float64)
	}
	maps.Copy(f.Numbers, numbers)
}
