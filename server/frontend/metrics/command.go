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

// Times of commands, as this node's clients meet them. A command of the log takes from the handing over
// of the batch until the replies are here: the journey to the leader and to the disks of a majority is part
// of the time. The commands of a batch share the batch's time in equal parts.

// Command counts the calls of one command, and how long they took.
type Command struct {
	// Name is the name of the row in the command table.
	Name                    string
	Calls, Rejected, Failed atomic.Uint64
	times                   atomic.Pointer[times]
}

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

// Took notes that a call took d.
func (c *Command) Took(d time.Duration) {
	t := c.times.Load()
	for t == nil { // CONFIG RESETSTAT may take away at once what another connection has made
		c.times.CompareAndSwap(nil, new(times))
		t = c.times.Load()
	}
	nanos := uint64(max(d, 0))
	t.nanos.Add(nanos)
	t.steps[stepOf(nanos)].Add(1)
	t.fine[fineOf(nanos)].Add(1)
}

// micros is the sum of all calls' times.
func (c *Command) micros() uint64 {
	if t := c.times.Load(); t != nil {
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

func (c *Command) reset() {
	c.Calls.Store(0)
	c.Rejected.Store(0)
	c.Failed.Store(0)
	c.times.Store(nil)
}

// latencyHistogram answers for the named commands, or for all that were called. A container stands for the
// subcommands.
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
