// Package report writes runs to a file of figures and to tables. It promises that every figure of a table is a median
// over rounds, that ratios are taken within a round before their median, and that no error is omitted.
//
// Start reading at [Result].
package report

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/holdfast/holdfast/bench/internal/floor"
	"github.com/holdfast/holdfast/bench/internal/load"
	"github.com/holdfast/holdfast/bench/internal/target"
	"github.com/holdfast/holdfast/bench/internal/workload"
)

// Machine describes where figures were measured.
type Machine struct {
	CPU      string       `json:"cpu"`
	CPUs     int          `json:"cpus"`
	Kernel   string       `json:"kernel"`
	Go       string       `json:"go"`
	Revision string       `json:"revision"`
	Floors   floor.Floors `json:"floors"`
}

// Point has the parameters of a run, except its round.
type Point struct {
	Workload      string  `json:"workload"`
	Target        string  `json:"target"`
	Connections   int     `json:"connections,omitempty"`
	RatePerSecond float64 `json:"rate_per_second,omitempty"`
	Depth         int     `json:"depth,omitempty"` // commands in a pipeline
	Held          int     `json:"held,omitempty"`  // locks held meanwhile
	// RoundTrip is the round-trip time between the servers.
	RoundTrip time.Duration `json:"round_trip,omitempty"`
}

// Run is one run's figures.
type Run struct {
	Point
	Round   int               `json:"round"`
	Figures *workload.Figures `json:"figures,omitempty"`
	// Failed is the reason why a run has no figures.
	Failed string `json:"failed,omitempty"`
}

// Result is all runs.
type Result struct {
	Started time.Time       `json:"started"`
	Command string          `json:"command"`
	Machine Machine         `json:"machine"`
	Targets []target.Target `json:"targets"`
	Runs    []Run           `json:"runs"`
	// Skipped has the reason of each requested peer that could not be started.
	Skipped []string `json:"skipped,omitempty"`
}

// WriteJSON writes everything.
func (r *Result) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// at returns the figures of a point, by round.
func (r *Result) at(p Point) map[int]*workload.Figures {
	rounds := make(map[int]*workload.Figures)
	for _, run := range r.Runs {
		if run.Point == p && run.Figures != nil {
			rounds[run.Round] = run.Figures
		}
	}
	return rounds
}

// median returns the median figures of a point, or nil if it has none.
func (r *Result) median(p Point) *workload.Figures {
	all := slices.Collect(maps.Values(r.at(p)))
	if len(all) == 0 {
		return nil
	}
	f := &workload.Figures{
		Steps: make(map[string]load.Latency), Numbers: make(map[string]float64),
		Errors: make(map[string]int64),
	}
	for name := range union(all, func(f *workload.Figures) map[string]load.Latency { return f.Steps }) {
		f.Steps[name] = medianLatency(all, name)
	}
	for name := range union(all, func(f *workload.Figures) map[string]float64 { return f.Numbers }) {
		f.Numbers[name] = medianBy(all, func(f *workload.Figures) float64 { return f.Numbers[name] })
	}
	for _, one := range all {
		for text, n := range one.Errors {
			f.Errors[text] += n
		}
	}
	return f
}

func union[V any](all []*workload.Figures, of func(*workload.Figures) map[string]V) map[string]bool {
	names := make(map[string]bool)
	for _, f := range all {
		for name := range of(f) {
			names[name] = true
		}
	}
	return names
}

func medianLatency(all []*workload.Figures, step string) load.Latency {
	by := func(field func(load.Latency) float64) float64 {
		return medianBy(all, func(f *workload.Figures) float64 { return field(f.Steps[step]) })
	}
	return load.Latency{
		Count:      int64(by(func(l load.Latency) float64 { return float64(l.Count) })),
		PerSecond:  by(func(l load.Latency) float64 { return l.PerSecond }),
		MeanMicros: by(func(l load.Latency) float64 { return l.MeanMicros }),
		P50Micros:  by(func(l load.Latency) float64 { return l.P50Micros }),
		P90Micros:  by(func(l load.Latency) float64 { return l.P90Micros }),
		P99Micros:  by(func(l load.Latency) float64 { return l.P99Micros }),
		P999Micros: by(func(l load.Latency) float64 { return l.P999Micros }),
		MaxMicros:  by(func(l load.Latency) float64 { return l.MaxMicros }),
	}
}

func medianBy(all []*workload.Figures, of func(*workload.Figures) float64) float64 {
	values := make([]float64, len(all))
	for i, f := range all {
		values[i] = of(f)
	}
	return median(values)
}

// median sorts values and returns their median. For an even number of values it is the mean of the middle two.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
