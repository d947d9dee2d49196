// Package load runs workers and measures their steps.
//
// It promises:
//   - figures contain nothing of the warm-up, and omit nothing because a worker was slow: at a fixed rate (open loop) a
//     step's latency counts from the instant at which its operation was due, however late it began;
//   - throughput is what was completed within the window, divided by the window;
//   - a failed operation is an error in the figures, never a latency.
//
// An [Op] is any function. Start reading at [Run].
package load

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"
)

// Op is an operation of a worker, such as a pair of acquire and release. It records its steps in r; their latencies
// count from start.
type Op func(ctx context.Context, start time.Time, r *Recorder) error

// Config has the rate and the duration of a run.
type Config struct {
	Warmup  time.Duration
	Measure time.Duration
	// RatePerSecond is the number of operations per second that all workers together begin. 0 is a closed loop, in
	// which each worker begins an operation when its last one has ended.
	RatePerSecond float64
	// Begin and End are called when the window opens and closes; each may be nil.
	Begin, End func()
}

// pause is a worker's pause after an error, so that the rate of a server's refusals is not measured.
const pause = 10 * time.Millisecond

// maxLate bounds the time after the window's end in which an open loop's overdue operations begin.
const maxLate = 10 * time.Second

// Run repeats every op in a goroutine of its own until the window has closed, and returns the measurements. It returns
// an error only if ctx has ended.
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

// open begins an operation at next and then every interval, or later if the one before is still running. No operation
// is dropped, and its delay counts as latency.
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

// sleepUntil returns false if ctx ended first.
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

// shards is how many recorders the workers share. A recorder for each worker would cost tens of KB a
// step and worker; a single recorder would make the workers wait for each other.
const shards = 16

const maxErrors = 16

// histogram counts latencies in microseconds, which are rounded to three digits.
type histogram map[uint32]int64

func (h histogram) add(d time.Duration) {
	micros := uint32(min(max(d.Microseconds(), 1), math.MaxUint32))
	rest := max(bits.Len32(micros)-11, 0)
	h[micros>>rest<<rest]++
}

// window is the time that is measured.
type window struct {
	from, to time.Time
	// byStart is set if latencies count for operations that began, not that ended, within the window.
	byStart bool
}

func (w window) has(at time.Time) bool { return !at.Before(w.from) && at.Before(w.to) }

// Recorder records operations. It is safe for concurrent use.
type Recorder struct {
	window window
	mu     sync.Mutex
	steps  map[string]histogram // guarded by mu
	done   map[string]int64     // guarded by mu; steps that ended within the window
	counts map[string]int64     // guarded by mu
	errors map[string]int64     // guarded by mu
}

func newRecorders(w window) []*Recorder {
	all := make([]*Recorder, shards)
	for i := range all {
		all[i] = &Recorder{
			window: w, steps: make(map[string]histogram), done: make(map[string]int64),
			counts: make(map[string]int64), errors: make(map[string]int64),
		}
	}
	return all
}

// Latency records a step from start to end.
func (r *Recorder) Latency(step string, start, end time.Time) {
	began, ended := r.window.has(start), r.window.has(end)
	if !began && !ended {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if ended {
		r.done[step]++
	}
	if r.window.byStart && !began || !r.window.byStart && !ended {
		return
	}
	h := r.steps[step]
	if h == nil {
		h = make(histogram)
		r.steps[step] = h
	}
	h.add(end.Sub(start))
}

// Count records n events at an instant.
func (r *Recorder) Count(what string, n int64, at time.Time) {
	if !r.window.has(at) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what] += n
}

// fail records a failed operation that began at start.
func (r *Recorder) fail(err error, start time.Time) {
	text := err.Error()
	text = text[:min(len(text), 100)]
	if !r.window.has(start) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.errors[text]; !known && len(r.errors) >= maxErrors {
		text = "other errors"
	}
	r.errors[text]++
}

// overdue records an operation that was due and never began.
func (r *Recorder) overdue(at time.Time) {
	if !r.window.has(at) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors["not begun: the rate is more than the server takes"]++
}

// Latency is the distribution of a step's latencies.
type Latency struct {
	// Count is of the latencies; PerSecond of what was completed within the window.
	Count      int64   `json:"count"`
	PerSecond  float64 `json:"per_second"`
	MeanMicros float64 `json:"mean_us"`
	P50Micros  float64 `json:"p50_us"`
	P90Micros  float64 `json:"p90_us"`
	P99Micros  float64 `json:"p99_us"`
	P999Micros float64 `json:"p999_us"`
	MaxMicros  float64 `json:"max_us"`
}

// Summary has the measurements of a run.
type Summary struct {
	Steps  map[string]Latency
	Counts map[string]int64
	Errors map[string]int64
}

func summarize(recorders []*Recorder, measured time.Duration) *Summary {
	s := &Summary{Steps: make(map[string]Latency), Counts: make(map[string]int64), Errors: make(map[string]int64)}
	steps := make(map[string]histogram)
	done := make(map[string]int64)
	for _, r := range recorders {
		for name, n := range r.done {
			done[name] += n
		}
		for name, h := range r.steps {
			if steps[name] == nil {
				steps[name] = make(histogram)
			}
			for micros, n := range h {
				steps[name][micros] += n
			}
		}
		for what, n := range r.counts {
			s.Counts[what] += n
		}
		for text, n := range r.errors {
			s.Errors[text] += n
		}
	}
	for name, h := range steps {
		s.Steps[name] = latencyOf(h, float64(done[name])/measured.Seconds())
	}
	return s
}

func latencyOf(h histogram, perSecond float64) Latency {
	l := Latency{PerSecond: perSecond}
	for micros, n := range h {
		l.Count += n
		l.MeanMicros += float64(micros) * float64(n)
	}
	l.MeanMicros /= float64(l.Count)
	below := int64(0)
	for _, micros := range slices.Sorted(maps.Keys(h)) {
		for _, q := range []struct {
			share float64
			at    *float64
		}{{0.5, &l.P50Micros}, {0.9, &l.P90Micros}, {0.99, &l.P99Micros}, {0.999, &l.P999Micros}, {1, &l.MaxMicros}} {
			if float64(below) < q.share*float64(l.Count) {
				*q.at = float64(micros)
			}
		}
		below += h[micros]
	}
	return l
}
