package metrics

import (
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// The time of a command of the log is measured from the call of the backend to the replies, so it includes the way to
// the leader and to the disks of a majority. The commands of a batch share its time equally.

// Command counts the calls of one command and their times.
type Command struct {
	// Name is the name of the row in the command table.
	Name                    string
	Calls, Rejected, Failed atomic.Uint64
	times                   atomic.Pointer[times]
}

// times has the times of the calls of one command. It is allocated at the first call.
type times struct {
	nanos atomic.Uint64
	// steps counts calls by steps that double, as in LATENCY HISTOGRAM; fine counts them by finer steps, for percentiles.
	steps [timeSteps]atomic.Uint64
	fine  [fineSteps]atomic.Uint32
}

const (
	firstStep = 10 // the first step is 2^10 ns
	timeSteps = 28
	// finePerStep is the number of fine steps in each doubling, from 16 ns on.
	finePerStep = 16
	fineSteps   = finePerStep * 34
)

// stepLimit returns the longest time of a step in nanoseconds, as in Redis's histogram: 1 µs, 2, 4, 8, 16, 33, 66, 132,
// …
func stepLimit(i int) uint64 { return 1<<(i+firstStep) + 1<<(i+firstStep-7) - 1 }

func stepOf(nanos uint64) int {
	i := max(0, bits.Len64(nanos)-1-firstStep)
	for i < timeSteps-1 && nanos > stepLimit(i) {
		i++
	}
	return min(i, timeSteps-1)
}

// fineOf returns the fine step of a time, and fineLimit the longest time of a fine step.
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

// Took counts a call that took d.
func (c *Command) Took(d time.Duration) {
	t := c.times.Load()
	for t == nil { // CONFIG RESETSTAT may remove at once what another connection has added
		c.times.CompareAndSwap(nil, new(times))
		t = c.times.Load()
	}
	nanos := uint64(max(d, 0))
	t.nanos.Add(nanos)
	t.steps[stepOf(nanos)].Add(1)
	t.fine[fineOf(nanos)].Add(1)
}

// micros returns the sum of all times.
func (c *Command) micros() uint64 {
	if t := c.times.Load(); t != nil {
		return t.nanos.Load() / 1000
	}
	return 0
}

// percentiles returns the times that these shares of the calls did not exceed, in microseconds, or nil without a call.
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

func (c *Command) reset() {
	c.Calls.Store(0)
	c.Rejected.Store(0)
	c.Failed.Store(0)
	c.times.Store(nil)
}

// latencyHistogram replies for the named commands, or for all that were called. A container names its subcommands.
func (g *Registry) latencyHistogram(args [][]byte) protocol.Value {
	var fields []protocol.Value
	for _, c := range g.cfg.Commands {
		t := c.times.Load()
		if t == nil || len(args) > 2 && !slices.ContainsFunc(args[2:], c.isNamed) {
			continue
		}
		var calls uint64
		var steps []protocol.Value
		for i := range t.steps {
			if n := t.steps[i].Load(); n > 0 {
				calls += n
				steps = append(steps, protocol.Integer(int64(stepLimit(i)/1000)), protocol.Integer(int64(calls)))
			}
		}
		if calls == 0 {
			continue
		}
		fields = append(fields, protocol.Bulk(c.Name), protocol.Map(
			protocol.Bulk("calls"), protocol.Integer(int64(calls)), protocol.Bulk("histogram_usec"), protocol.Map(steps...)))
	}
	return protocol.Map(fields...)
}

// isNamed reports whether a word names the command or the container.
func (c *Command) isNamed(word []byte) bool {
	container, _, _ := strings.Cut(c.Name, "|")
	return strings.EqualFold(string(word), c.Name) || strings.EqualFold(string(word), container)
}
