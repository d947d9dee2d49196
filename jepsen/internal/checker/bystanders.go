package checker

import (
	"slices"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// Bounds of the effect of hostile clients on others. The server promises a second on a machine of its own; here all
// nodes and clients share a machine.
const (
	// MaxSilence is the longest time in which no client is served.
	MaxSilence = 5 * time.Second
	// MaxNodeSilence is the same for the clients of one node.
	MaxNodeSilence = 10 * time.Second
)

// Bystanders judges the effect of hostile clients, whose faults are of the group, on other clients. It ignores a fault
// that overlaps another kind. A silence counts until the next fault begins. A node to which no request was sent
// meanwhile was no member.
func Bystanders(h *history.History, group string) Result {
	var good []history.Op
	nodes := map[string][]history.Op{}
	var end int64
	for _, o := range h.Ops {
		end = max(end, o.Return)
		if o.Outcome == history.OK && o.Node != "" {
			good = append(good, o)
		}
	}
	slices.SortStableFunc(good, func(a, b history.Op) int { return int(a.Return - b.Return) })
	for _, o := range good {
		nodes[o.Node] = append(nodes[o.Node], o)
	}
	r := Result{Name: "bystanders", Verdict: Valid, Looked: len(good), Counts: map[string]int{}}
	for _, f := range h.Faults {
		next, beside := next(h.Faults, f, end)
		if f.Group != group || beside {
			continue
		}
		r.Counts["faults"]++
		worst := quietest(good, f, next)
		if worst > MaxSilence {
			r.find("%s at %.1fs: no client was served for %s; %s is the limit", f.Name, time.Duration(f.Start).Seconds(),
				worst.Round(time.Millisecond), MaxSilence)
		}
		for _, n := range sortedKeys(nodes) {
			of := quietest(nodes[n], f, next)
			if of > MaxNodeSilence && wasAsked(h.Ops, n, f.Start, next) {
				r.find("%s at %.1fs: no client was served by %s for %s; %s is the limit", f.Name, time.Duration(f.Start).Seconds(),
					n, of.Round(time.Millisecond), MaxNodeSilence)
			}
		}
		r.Counts["longest silence ms"] = max(r.Counts["longest silence ms"], int(worst.Milliseconds()))
	}
	return r
}

// wasAsked reports whether a client sent a request to a node within a time.
func wasAsked(ops []history.Op, node string, from, to int64) bool {
	return slices.ContainsFunc(ops, func(o history.Op) bool { return o.Node == node && from <= o.Call && o.Call < to })
}

// next returns the start of the next fault after of, or the end of the history, and whether another fault overlaps of.
func next(faults []history.Fault, of history.Fault, end int64) (at int64, beside bool) {
	at = end
	for _, g := range faults {
		switch {
		case g == of:
		case g.Start >= of.Stop:
			at = min(at, g.Start)
		case g.Stop > of.Start:
			beside = true
		}
	}
	return at, beside
}

// quietest returns the longest time between two successes that begins within a fault and ends before the next.
func quietest(good []history.Op, f history.Fault, next int64) time.Duration {
	last, longest := f.Start, int64(0)
	for i := range good {
		at := good[i].Return
		if at < f.Start {
			continue
		}
		longest = max(longest, min(at, next)-last)
		if at > f.Stop {
			return time.Duration(longest)
		}
		last = at
	}
	return time.Duration(max(longest, next-last))
}
