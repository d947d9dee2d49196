package workload

import (
	"context"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/holdfast/holdfast/bench/internal/proc"
)

// growth measures uncontended pairs beside e.Held held locks.
func growth(ctx context.Context, e Env) (*Figures, error) {
	if err := fill(ctx, e, e.Held, lockKey); err != nil {
		return nil, err
	}
	f, err := uncontended(ctx, e)
	if err != nil {
		return nil, err
	}
	e.Sizes.Locks = e.Held
	return f, empty(ctx, e, lockKey)
}

// longSlices is the number of slices of a long run, each of a second or more.
const longSlices = 60

// long measures uncontended pairs in slices of the window, to show the effects of truncated logs, snapshots and reused
// pages over hours.
func long(ctx context.Context, e Env) (*Figures, error) {
	e.Connections = steadyConnections
	ops, end, err := pairsOf(ctx, e)
	if err != nil {
		return nil, err
	}
	defer end()
	whole, part := e.Measure, max(time.Second, e.Measure/longSlices)
	f := &Figures{Series: make(map[string][]float64), Errors: make(map[string]int64)}
	started := time.Now()
	var first, last []float64
	for e.Measure = part; whole >= part; whole -= part {
		one, err := measure(ctx, e, ops)
		if err != nil {
			return nil, err
		}
		e.Warmup = 0
		rate := one.Steps["pair"].PerSecond
		f.append(map[string]float64{
			"seconds": time.Since(started).Seconds(), "pairs_per_second": rate, "p99_ms": one.Steps["acquire"].P99Micros / 1000,
			"rss_bytes_max": one.Numbers["server_rss_bytes_max"], "disk_bytes": diskBytes(e.Target.Dir),
		})
		for text, n := range one.Errors {
			f.Errors[text] += n
		}
		first, last = f.quarters("pairs_per_second")
	}
	f.merge(map[string]float64{
		"pairs_per_second": mean(f.Series["pairs_per_second"]), "last_quarter_by_first": mean(last) / mean(first),
		"disk_bytes": diskBytes(e.Target.Dir),
	})
	if u, err := proc.Read(pids(e)...); err == nil && len(u.RSSBytes) > 0 {
		f.merge(map[string]float64{"rss_bytes_sum": sum(u.RSSBytes)})
	}
	return f, nil
}

func pids(e Env) []int {
	if e.Target.PIDs == nil {
		return nil
	}
	return e.Target.PIDs()
}

func sum(all []int64) float64 {
	var s int64
	for _, n := range all {
		s += n
	}
	return float64(s)
}

// append adds a point to every series.
func (f *Figures) append(point map[string]float64) {
	for name, v := range point {
		f.Series[name] = append(f.Series[name], v)
	}
}

// quarters returns the first and the last quarter of a series, or a short series twice.
func (f *Figures) quarters(name string) (first, last []float64) {
	s := f.Series[name]
	n := max(1, len(s)/4)
	return s[:n], s[len(s)-n:]
}

func mean(all []float64) float64 {
	var s float64
	for _, v := range all {
		s += v
	}
	return s / float64(max(1, len(all)))
}

// diskBytes returns the size of a folder's content. Files that vanish meanwhile do not count.
func diskBytes(dir string) float64 {
	if dir == "" {
		return 0
	}
	var total int64
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			if info, err := entry.Info(); err == nil {
				total += info.Size()
			}
		}
		return nil
	})
	return float64(total)
}
