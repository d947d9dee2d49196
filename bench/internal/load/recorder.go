package load

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// shards is how many recorders the workers share. A recorder for each worker would cost 200 KB a
// step and worker; a single recorder would make the workers wait for each other.
const shards = 16

// Latencies are kept in microseconds, to three digits.
const (
	maxMicros = 5 * 60 * 1_000_000
	digits    = 3
	maxErrors = 16
)

// window is the time that is measured.
type window struct {
	from, to time.Time
	// byStart: latencies count for what began within the window, and not for what ended within.
	byStart bool
}

func (w window) has(at time.Time) bool { return !at.Before(w.from) && at.Before(w.to) }

// Recorder takes down what happens. A Recorder is safe for many goroutines.
type Recorder struct {
	window window
	mu     sync.Mutex
	steps  map[string]*hdrhistogram.Histogram // guarded by mu
	done   map[string]int64                   // guarded by mu; steps that ended within the window
	counts map[string]int64                   // guarded by mu
	errors map[string]int64                   // guarded by mu
}

func newRecorders(w window) []*Recorder {
	all := make([]*Recorder, shards)
	for i := range all {
		all[i] = &Recorder{
			window: w, steps: make(map[string]*hdrhistogram.Histogram), done: make(map[string]int64),
			counts: make(map[string]int64), errors: make(map[string]int64),
		}
	}
	return all
}

// Latency takes down that a step went from start to end.
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
		h = hdrhistogram.New(1, maxMicros, digits)
		r.steps[step] = h
	}
	// A value beyond the range is kept as the largest.
	_ = h.RecordValue(min(max(end.Sub(start).Microseconds(), 1), maxMicros))
}

// Count takes down that something happened n times at a moment.
func (r *Recorder) Count(what string, n int64, at time.Time) {
	if !r.window.has(at) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what] += n
}

// fail takes down an operation that began at start and failed.
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

// overdue takes down an operation that should have begun and never did.
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

// Summary is what a run measured.
type Summary struct {
	Steps  map[string]Latency
	Counts map[string]int64
	Errors map[string]int64
}

func summarize(recorders []*Recorder, measured time.Duration) *Summary {
	s := &Summary{Steps: make(map[string]Latency), Counts: make(map[string]int64), Errors: make(map[string]int64)}
	steps := make(map[string]*hdrhistogram.Histogram)
	done := make(map[string]int64)
	for _, r := range recorders {
		for name, n := range r.done {
			done[name] += n
		}
		for name, h := range r.steps {
			if steps[name] == nil {
				steps[name] = hdrhistogram.New(1, maxMicros, digits)
			}
			steps[name].Merge(h)
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

func latencyOf(h *hdrhistogram.Histogram, perSecond float64) Latency {
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) }
	return Latency{
		Count: h.TotalCount(), PerSecond: perSecond, MeanMicros: h.Mean(),
		P50Micros: at(50), P90Micros: at(90), P99Micros: at(99), P999Micros: at(99.9), MaxMicros: float64(h.Max()),
	}
}
