package metrics

import (
	"sync"
	"sync/atomic"
	"time"
)

// rates computes rates over the last 1.6 seconds, as Redis's instantaneous metrics do. There is no ticker: commands
// take a sample at most every 100 ms. So an event that no sample has counted happened within 100 ms of one.
type rates struct {
	since time.Time
	// due is the time of the next sample, in nanoseconds after since.
	due atomic.Int64

	mu      sync.Mutex
	samples [rateSamples]rateSample
	latest  int
}

// rateSample has the counts at a time, in nanoseconds after since.
type rateSample struct {
	at     int64
	counts rateCounts
}

type rateCounts struct{ commands, in, out uint64 }

const (
	rateStep    = 100 * time.Millisecond
	rateWindow  = 16 * rateStep
	rateSamples = 18 // those of a window, and one before it
)

// NoteRates takes a sample if one is due at now.
func (g *Registry) NoteRates(now time.Time) {
	r := &g.rates
	at, due := now.Sub(r.since).Nanoseconds(), r.due.Load()
	if at < due || !r.due.CompareAndSwap(due, at+int64(rateStep)) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latest = (r.latest + 1) % rateSamples
	r.samples[r.latest] = rateSample{at, g.rateCounts()}
}

func (s *Counters) rateCounts() rateCounts {
	return rateCounts{s.Commands.Load(), s.BytesIn.Load(), s.BytesOut.Load()}
}

// reset restarts at now, as the counts do.
func (r *rates) reset(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.samples[:])
	r.samples[r.latest].at = now.Sub(r.since).Nanoseconds()
}

// rateStats has rates per second.
type rateStats struct{ commands, in, out float64 }

// perSecond returns the rates at now.
func (g *Registry) perSecond(now time.Time) rateStats {
	r := &g.rates
	r.mu.Lock()
	defer r.mu.Unlock()
	at, counts := now.Sub(r.since).Nanoseconds(), g.rateCounts()
	from := at - int64(rateWindow)
	then, later := rateCounts{}, counts // the counts at the beginning of the window
	for i := range rateSamples {
		sample := &r.samples[(r.latest+rateSamples-i)%rateSamples]
		if sample.at > from {
			later = sample.counts
			continue
		}
		if then = sample.counts; sample.at+int64(rateStep) <= from {
			then = later // all that was counted after the sample was so before the window
		}
		break
	}
	seconds := time.Duration(max(int64(rateStep), min(at, int64(rateWindow)))).Seconds()
	rate := func(now, then uint64) float64 { return float64(now-min(then, now)) / seconds }
	return rateStats{rate(counts.commands, then.commands), rate(counts.in, then.in), rate(counts.out, then.out)}
}
