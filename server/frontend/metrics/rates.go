package metrics

import (
	"sync"
	"sync/atomic"
	"time"
)

// rates tell how much there was per second of late, as Redis's instantaneous metrics do: over the latest 1.6
// seconds. Nothing ticks. Commands note a sample on their way, at most every 100 ms, and so what no sample tells of
// happened within 100 ms of one.
type rates struct {
	since time.Time
	// due is when the next sample is, in nanoseconds since since.
	due atomic.Int64

	mu      sync.Mutex
	samples [rateSamples]rateSample
	latest  int
}

// rateSample is what had been counted at a time, in nanoseconds since the start.
type rateSample struct {
	at     int64
	counts rateCounts
}

type rateCounts struct{ commands, in, out uint64 }

const (
	rateStep    = 100 * time.Millisecond
	rateWindow  = 16 * rateStep
	rateSamples = 18 // those of a window, and one before
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

// reset begins anew at now, as the counts do.
func (r *rates) reset(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.samples[:])
	r.samples[r.latest].at = now.Sub(r.since).Nanoseconds()
}

// rateStats are rates per second.
type rateStats struct{ commands, in, out float64 }

// perSecond are the rates at now.
func (g *Registry) perSecond(now time.Time) rateStats {
	r := &g.rates
	r.mu.Lock()
	defer r.mu.Unlock()
	at, counts := now.Sub(r.since).Nanoseconds(), g.rateCounts()
	from := at - int64(rateWindow)
	then, later := rateCounts{}, counts // counted when the window began
	for i := range rateSamples {
		sample := &r.samples[(r.latest+rateSamples-i)%rateSamples]
		if sample.at > from {
			later = sample.counts
			continue
		}
		if then = sample.counts; sample.at+int64(rateStep) <= from {
			then = later // all that came after the sample came before the window
		}
		break
	}
	seconds := time.Duration(max(int64(rateStep), min(at, int64(rateWindow)))).Seconds()
	rate := func(now, then uint64) float64 { return float64(now-min(then, now)) / seconds }
	return rateStats{rate(counts.commands, then.commands), rate(counts.in, then.in), rate(counts.out, then.out)}
}
