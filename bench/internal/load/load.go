// Package load runs a number of workers against something and measures how long
// their steps take.
//
// It promises:
//   - nothing that happened during the warm-up is in the figures, and nothing is
//     left out because a worker was slow (open loop): with a fixed rate a step's
//     latency counts from the moment an operation should have begun, however late it did;
//   - throughput is what was completed within the window, divided by the window;
//   - an operation that failed is an error in the figures, never a latency.
//
// The package knows nothing of locks or sockets: an [Op] is a function.
//
// Start reading at [Run].
package load

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Op is an operation of a worker: a pair of acquire and release, say. The operation began
// at start, as far as latencies are concerned, and tells r of its steps.
type Op func(ctx context.Context, start time.Time, r *Recorder) error

// Config says how hard and how long.
type Config struct {
	Warmup  time.Duration
	Measure time.Duration
	// RatePerSecond is how many operations all workers together should begin; 0 is a
	// closed loop: each worker begins an operation when its last has ended.
	RatePerSecond float64
	// Begin and End are called when the window opens and closes; each may be nil.
	Begin, End func()
}

// pause is what a worker rests after an error, so that a server that refuses
// everything is not measured by how fast it does.
const pause = 10 * time.Millisecond

// maxLate is how long after the window's end an open loop's overdue operations may begin.
const maxLate = 10 * time.Second

// Run lets every op loop in a goroutine of its own until the window has closed, and
// returns what was measured. It returns an error only when ctx ended.
func Run(ctx context.Context, c Config, ops []Op) (*Summary, error) {
	begin := time.Now()
	w := window{from: begin.Add(c.Warmup), byStart: c.RatePerSecond > 0}
	w.to = w.from.Add(c.Measure)
	recorders := newRecorders(w)

	var workers sync.WaitGroup
	for i, op := range ops {
		r := recorders[i%len(recorders)]
		workers.Go(func() {
			if c.RatePerSecond > 0 {
				interval := time.Duration(float64(time.Second) * float64(len(ops)) / c.RatePerSecond)
				open(ctx, op, r, begin.Add(interval*time.Duration(i)/time.Duration(len(ops))), interval)
			} else {
				closed(ctx, op, r)
			}
		})
	}
	err := watch(ctx, c, w)
	workers.Wait()
	return summarize(recorders, c.Measure), errors.Join(err, context.Cause(ctx))
}

// watch calls c's hooks at the window's edges.
func watch(ctx context.Context, c Config, w window) error {
	for _, edge := range []struct {
		at time.Time
		do func()
	}{{w.from, c.Begin}, {w.to, c.End}} {
		if !sleepUntil(ctx, edge.at) {
			return context.Cause(ctx)
		}
		if edge.do != nil {
			edge.do()
		}
	}
	return nil
}

// closed begins an operation when the last one has ended.
func closed(ctx context.Context, op Op, r *Recorder) {
	for ctx.Err() == nil {
		start := time.Now()
		if !start.Before(r.window.to) {
			return
		}
		if err := op(ctx, start, r); err != nil && ctx.Err() == nil {
			r.fail(err, start)
			sleepUntil(ctx, time.Now().Add(pause))
		}
	}
}

// open begins an operation at next and every interval, or as soon after as the
// operation before lets it: what is due is never dropped, and the wait counts.
func open(ctx context.Context, op Op, r *Recorder, next time.Time, interval time.Duration) {
	for ; next.Before(r.window.to); next = next.Add(interval) {
		if !sleepUntil(ctx, next) {
			return
		}
		if time.Since(r.window.to) > maxLate {
			r.overdue(next)
			continue
		}
		if err := op(ctx, next, r); err != nil && ctx.Err() == nil {
			r.fail(err, next)
		}
	}
}

// sleepUntil reports false when ctx ended first.
func sleepUntil(ctx context.Context, t time.Time) bool {
	d := time.Until(t)
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
