package observe

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// slowEvents has the latest slow events of a kind: "command", or "fast-command" for commands with Redis's flag fast. It
// keeps at most one a second, the slowest.
type slowEvents struct {
	samples []slowSample // the newest last
	worst   int64        // milliseconds
}

type slowSample struct{ second, millis int64 }

// maxSamples bounds the samples, as in Redis.
const maxSamples = 160

// noteEvent records a slow event. The caller holds l.mu.
func (l *Slowlog) noteEvent(kind string, at time.Time, took time.Duration) {
	e := l.events[kind]
	if e == nil {
		e = &slowEvents{}
		l.events[kind] = e
	}
	s := slowSample{at.Unix(), took.Milliseconds()}
	e.worst = max(e.worst, s.millis)
	if last := len(e.samples) - 1; last >= 0 && e.samples[last].second == s.second {
		e.samples[last].millis = max(e.samples[last].millis, s.millis)
		return
	}
	if e.samples = append(e.samples, s); len(e.samples) > maxSamples {
		e.samples = e.samples[1:]
	}
}

// kinds returns the kinds of events, sorted. The caller holds l.mu.
func (l *Slowlog) kinds() []string {
	var kinds []string
	for kind := range l.events {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	return kinds
}

func (l *Slowlog) latencyLatest([][]byte) protocol.Value {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []protocol.Value
	for _, kind := range l.kinds() {
		e := l.events[kind]
		last := e.samples[len(e.samples)-1]
		all = append(all, protocol.Array(protocol.Bulk(kind), protocol.Integer(last.second),
			protocol.Integer(last.millis), protocol.Integer(e.worst)))
	}
	return protocol.Array(all...)
}

func (l *Slowlog) latencyHistory(args [][]byte) protocol.Value {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []protocol.Value
	if e := l.events[string(args[2])]; e != nil {
		for _, s := range e.samples {
			all = append(all, protocol.Array(protocol.Integer(s.second), protocol.Integer(s.millis)))
		}
	}
	return protocol.Array(all...)
}

func (l *Slowlog) latencyReset(args [][]byte) protocol.Value {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.events)
	if len(args) == 2 {
		clear(l.events)
		return protocol.Integer(int64(n))
	}
	for _, kind := range args[2:] {
		delete(l.events, string(kind))
	}
	return protocol.Integer(int64(n - len(l.events)))
}

// latencyDoctor names the slow events. There are few causes: disks, the network between the nodes, and long scripts.
func (l *Slowlog) latencyDoctor([][]byte) protocol.Value {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.MonitorMillis.Load() == 0 {
		return protocol.Verbatim("Latency monitoring is disabled. You may use \"CONFIG SET latency-monitor-threshold " +
			"<milliseconds>\" on this node.\n")
	}
	if len(l.events) == 0 {
		return protocol.Verbatim("No latency spike was observed since the threshold was set.\n")
	}
	var b strings.Builder
	for i, kind := range l.kinds() {
		e := l.events[kind]
		var sum int64
		for _, s := range e.samples {
			sum += s.millis
		}
		fmt.Fprintf(&b, "%d. %s: %d latency spikes (average %dms). Worst all time event %dms.\n",
			i+1, kind, len(e.samples), sum/int64(len(e.samples)), e.worst)
	}
	b.WriteString("\nA command of the log takes a journey to the leader and an fsync on a majority of the disks. " +
		"Look at the disks, at the network between the nodes, and at SLOWLOG GET for long scripts.\n")
	return protocol.Verbatim(b.String())
}

// graphRows and graphColumns are the size of the graph, as in Redis.
const (
	graphRows    = 4
	graphColumns = 80
)

// latencyGraph draws a column for each event, the higher the slower.
func (l *Slowlog) latencyGraph(args [][]byte) protocol.Value {
	kind := string(args[2])
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.events[kind]
	if e == nil {
		return protocol.Err("No samples available for event '" + kind + "'")
	}
	samples := e.samples[max(0, len(e.samples)-graphColumns):]
	low, high := samples[0].millis, samples[0].millis
	for _, s := range samples {
		low, high = min(low, s.millis), max(high, s.millis)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s - high %d ms, low %d ms (all time high %d ms)\n%s\n", kind, high, low, e.worst,
		strings.Repeat("-", graphColumns))
	for r := graphRows - 1; r >= 0; r-- {
		for _, s := range samples {
			// A row has three marks, from the bottom up.
			height := int(float64(s.millis-low) / max(1, float64(high-low)) * (3*graphRows - 1))
			switch {
			case height/3 > r:
				b.WriteByte('|')
			case height/3 == r:
				b.WriteByte("_o#"[height%3])
			default:
				b.WriteByte(' ')
			}
		}
		b.WriteByte('\n')
	}
	ages := make([]string, len(samples))
	longest := 0
	for i, s := range samples {
		ages[i] = age(time.Now().Unix() - s.second)
		longest = max(longest, len(ages[i]))
	}
	b.WriteByte('\n')
	for r := range longest {
		for _, a := range ages {
			b.WriteByte((a + strings.Repeat(" ", longest))[r])
		}
		b.WriteByte('\n')
	}
	return protocol.Verbatim(b.String())
}

// age formats a number of seconds in one unit, for a vertical label.
func age(seconds int64) string {
	for _, unit := range []struct {
		seconds int64
		name    string
	}{{24 * 3600, "d"}, {3600, "h"}, {60, "m"}} {
		if seconds >= unit.seconds {
			return fmt.Sprintf("%d%s", seconds/unit.seconds, unit.name)
		}
	}
	return fmt.Sprintf("%ds", seconds)
}
