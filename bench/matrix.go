package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/bench/internal/drive"
	"github.com/holdfast/holdfast/bench/internal/peers"
	"github.com/holdfast/holdfast/bench/internal/report"
	"github.com/holdfast/holdfast/bench/internal/target"
	"github.com/holdfast/holdfast/bench/internal/workload"
)

// subject is a target, with the actions on its processes.
type subject struct {
	target.Target
	control  workload.Control
	part     func(roundTrip time.Duration) error // sets the round trip between the servers
	failover bool
}

// startSubjects returns the subjects of the run: first the peers, which it starts, then the targets that already run.
// stop stops the peers.
func startSubjects(ctx context.Context, o options, result *report.Result, stderr io.Writer) (all []subject,
	stop func() error, err error,
) {
	stop = func() error { return nil }
	if len(o.peers) > 0 {
		fmt.Fprintln(stderr, "starting", strings.Join(o.peers, ", "))
		started, err := peers.Start(ctx, o.peers, peers.Options{
			Dir: o.out, Holdfast: o.holdfast, Before: o.before, Apart: len(o.roundTrips) > 0,
		})
		if err != nil {
			return nil, nil, err
		}
		stop = started.Stop
		for _, err := range started.Skipped {
			fmt.Fprintln(stderr, "skipped:", err)
			result.Skipped = append(result.Skipped, err.Error())
		}
		for _, s := range started.Subjects {
			all = append(all, subject{Target: s.Target, control: s.Cluster, part: s.Cluster.Part, failover: s.Failover})
		}
	}
	for _, t := range o.targets {
		all = append(all, subject{Target: t})
	}
	if len(all) == 0 {
		return nil, nil, errors.Join(errors.New("nothing to measure: give --peers or --targets"), stop())
	}
	if err := sameNames(all); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return all, stop, nil
}

// runMatrix measures every point in every round. A disturbance of a minute hits all subjects, since the innermost loop
// is over them. Each round begins with another subject. Every second round reverses a workload's points: drift then does
// not look like a difference between points.
func runMatrix(ctx context.Context, o options, subjects []subject, result *report.Result, stderr io.Writer) error {
	for round := range o.rounds {
		for _, w := range o.workloads {
			for _, p := range inTurn(points(o, w), round) {
				for i := range subjects {
					s := subjects[(i+round)%len(subjects)]
					if !w.suits(s) {
						continue
					}
					if ctx.Err() != nil {
						return context.Cause(ctx)
					}
					p.Target = s.Name
					result.Runs = append(result.Runs, runPoint(ctx, o, w.Workload, s, p, round, stderr))
				}
			}
		}
	}
	return nil
}

// inTurn returns the order of all in a round.
func inTurn[T any](all []T, round int) []T {
	if round%2 == 1 {
		slices.Reverse(all)
	}
	return all
}

// suits reports whether a workload was requested for a subject, and is meaningful for it.
func (w planned) suits(s subject) bool {
	if len(w.targets) > 0 && !slices.Contains(w.targets, s.Name) {
		return false
	}
	return w.Suits(s.Target) && (s.failover || s.control == nil || !w.Failover)
}

// points returns the points of a workload for a target.
func points(o options, w planned) []report.Point {
	if w.Once {
		return []report.Point{{Workload: w.Name}}
	}
	connections, rates, depths, held, roundTrips := w.connections, o.rates, []int{0}, []int{0}, o.roundTrips
	if len(connections) == 0 {
		connections = o.connections
	}
	if len(rates) == 0 {
		rates = []float64{0}
	}
	if len(roundTrips) == 0 {
		roundTrips = []time.Duration{0}
	}
	if w.Batch {
		depths = o.depths
	}
	if w.Holds {
		held = o.held
	}
	var all []report.Point
	for _, roundTrip := range roundTrips {
		for _, n := range connections {
			for _, rate := range rates {
				for _, depth := range depths {
					for _, h := range held {
						all = append(all, report.Point{
							Workload: w.Name, RoundTrip: roundTrip, Connections: n, RatePerSecond: rate, Depth: depth, Held: h,
						})
					}
				}
			}
		}
	}
	return all
}

// runPoint performs one run. A failed run is part of the result, and does not stop the others.
func runPoint(ctx context.Context, o options, w workload.Workload, s subject, p report.Point, round int,
	stderr io.Writer,
) report.Run {
	e := o.env
	e.Target, e.Control, e.Connections, e.RatePerSecond = s.Target, s.control, p.Connections, p.RatePerSecond
	e.Sizes.Depth, e.Held = p.Depth, p.Held
	fmt.Fprintf(stderr, "round %d/%d %s %s %s", round+1, o.rounds, w.Name, s.Name, p.Title())
	f, err := (*workload.Figures)(nil), error(nil)
	if p.RoundTrip > 0 {
		err = s.part(p.RoundTrip)
	}
	if err == nil {
		err = prepare(ctx, w, e)
	}
	if err == nil {
		f, err = runIn(ctx, w, e)
	}
	run := report.Run{Point: p, Round: round, Figures: f}
	if err != nil {
		run.Figures, run.Failed = nil, err.Error()
		fmt.Fprintf(stderr, ": %v\n", err)
		return run
	}
	fmt.Fprintln(stderr, ":", brief(w, f))
	return run
}

// prepareLimit bounds the time until servers are ready for a run.
const prepareLimit = 30 * time.Second

// prepare waits until all servers of a peer are ready, for example after an election on a busy machine, and restarts
// them empty for a workload that needs that.
func prepare(ctx context.Context, w workload.Workload, e workload.Env) error {
	if e.Control == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, prepareLimit)
	defer cancel()
	if w.Fresh {
		for _, addr := range e.Target.Addrs {
			if err := e.Control.Kill(addr); err != nil {
				return err
			}
		}
		for _, addr := range e.Target.Addrs {
			if err := e.Control.Empty(addr); err != nil {
				return err
			}
		}
		for _, addr := range e.Target.Addrs {
			if err := e.Control.Start(ctx, addr); err != nil {
				return err
			}
		}
	}
	return e.Control.Ready(ctx)
}

// runIn runs a workload in this process, or in the target's driver. It runs failovers in this process, which alone can
// kill the servers.
func runIn(ctx context.Context, w workload.Workload, e workload.Env) (*workload.Figures, error) {
	if e.Target.Driver != "" && !w.Control {
		return drive.Run(ctx, w, e)
	}
	return w.Run(ctx, e)
}

// brief returns a line of progress.
func brief(w workload.Workload, f *workload.Figures) string {
	if w.Once {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(f.Numbers)) {
			parts = append(parts, fmt.Sprintf("%s %.4g", name, f.Numbers[name]))
		}
		return strings.Join(parts, ", ")
	}
	var errs int64
	for _, n := range f.Errors {
		errs += n
	}
	step := f.Steps[w.Step]
	return fmt.Sprintf("%.0f/s, p50 %.2f ms, p99 %.2f ms, %d errors", report.RateOf(w, f), step.P50Micros/1000,
		step.P99Micros/1000, errs)
}

// sameNames returns an error if two subjects have the same name.
func sameNames(subjects []subject) error {
	for i, s := range subjects {
		if slices.ContainsFunc(subjects[:i], func(o subject) bool { return o.Name == s.Name }) {
			return fmt.Errorf("two targets are called %s", s.Name)
		}
	}
	return nil
}
