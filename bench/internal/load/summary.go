package load

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

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
