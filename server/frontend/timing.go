package frontend

import (
	"math/bits"
	"strconv"
	"sync/atomic"
	"time"
)

// Times of commands, as this node's clients meet them. A command of the log takes from the handing over
// of the batch until the replies are here: the journey to the leader and to the disks of a majority is part
// of the time. The commands of a batch share the batch's time in equal parts.

// times are what calls of one command took. Memory for them is taken at the first call.
type times struct {
	nanos atomic.Uint64
	// steps count calls by doubling times, as LATENCY HISTOGRAM has them; fine counts them in finer steps,
	// for percentiles.
	steps [timeSteps]atomic.Uint64
	fine  [fineSteps]atomic.Uint32
}

const (
	firstStep = 10 // the first step is 2^10 ns
	timeSteps = 28
	// finePerStep parts of each doubling, from 16 ns on.
	finePerStep = 16
	fineSteps   = finePerStep * 34
)

// stepLimit is the longest time of a step in nanoseconds, as Redis's histogram has them: 1 µs, 2, 4, 8, 16,
// 33, 66, 132, …
func stepLimit(i int) uint64 { return 1<<(i+firstStep) + 1<<(i+firstStep-7) - 1 }

func stepOf(nanos uint64) int {
	i := max(0, bits.Len64(nanos)-1-firstStep)
	for i < timeSteps-1 && nanos > stepLimit(i) {
		i++
	}
	return min(i, timeSteps-1)
}

// fineOf is the fine step of a time, and fineLimit the longest time of a fine step.
func fineOf(nanos uint64) int {
	if nanos < finePerStep {
		return int(nanos)
	}
	shift := bits.Len64(nanos) - 5
	return min(finePerStep*(shift+1)+int(nanos>>shift)-finePerStep, fineSteps-1)
}

func fineLimit(i int) uint64 {
	if i < finePerStep {
		return uint64(i)
	}
	shift := i/finePerStep - 1
	return uint64(finePerStep+i%finePerStep+1)<<shift - 1
}

// took notes that a call took d.
func (r *row) took(d time.Duration) {
	t := r.times.Load()
	for t == nil { // CONFIG RESETSTAT may take away at once what another connection has made
		r.times.CompareAndSwap(nil, new(times))
		t = r.times.Load()
	}
	nanos := uint64(max(d, 0))
	t.nanos.Add(nanos)
	t.steps[stepOf(nanos)].Add(1)
	t.fine[fineOf(nanos)].Add(1)
}

// micros is the sum of all calls' times.
func (r *row) micros() uint64 {
	if t := r.times.Load(); t != nil {
		return t.nanos.Load() / 1000
	}
	return 0
}

// percentiles are the times that this share of the calls did not exceed, in microseconds; nil: no call.
func (t *times) percentiles(shares ...float64) (micros []string) {
	var counts [fineSteps]uint64
	var all uint64
	for i := range t.fine {
		counts[i] = uint64(t.fine[i].Load())
		all += counts[i]
	}
	if all == 0 {
		return nil
	}
	for _, share := range shares {
		wanted, seen := uint64(share/100*float64(all)+0.5), uint64(0)
		for i := range counts {
			if seen += counts[i]; seen >= max(wanted, 1) {
				micros = append(micros, strconv.FormatFloat(float64(fineLimit(i))/1000, 'f', 3, 64))
				break
			}
		}
	}
	return micros
}

// timeBatch notes that the commands of the batch took d together.
func (c *conn) timeBatch(d time.Duration) {
	w := c.w
	if w.batch.Count == 0 {
		return
	}
	share := d / time.Duration(w.batch.Count)
	slow := c.srv.slow.isSlow(share)
	body := ""
	if slow {
		body = string(w.batch.Body)
	}
	for i := range w.slots {
		s := &w.slots[i]
		if s.kind == slotLocal {
			continue
		}
		s.row.took(share)
		if slow {
			body = c.noteSlowRequest(s.row, body, share)
		}
	}
}

// timeLocal notes that a command of this node took d.
func (c *conn) timeLocal(row *row, args [][]byte, d time.Duration) {
	row.took(d)
	if c.srv.slow.isSlow(d) {
		c.noteSlow(row, shorten(row, args), d)
	}
}
