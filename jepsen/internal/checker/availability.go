package checker

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// Outage has the effects of one fault: how long no client was served, and how long after the fault every node served
// again.
type Outage struct {
	Fault history.Fault `json:"fault"`
	// Silence is the longest time without a successful operation of any client that overlaps the fault or the time
	// until all nodes served again.
	Silence time.Duration `json:"silence"`
	// Recovery is the time from the end of the fault, and of overlapping ones, to the first success on the slowest
	// node. It is negative if a node served again only after the next fault.
	Recovery time.Duration `json:"recovery"`
	Slowest  string        `json:"slowest,omitempty"` // that node
}

// Availability returns the outages of all faults, in order of time. They are no verdict, as a cluster without a
// majority cannot serve.
func Availability(h *history.History) []Outage {
	var nodes []string
	var good []history.Op
	for _, o := range h.Ops {
		if o.Outcome == history.OK && o.Node != "" {
			good = append(good, o)
			if !slices.Contains(nodes, o.Node) {
				nodes = append(nodes, o.Node)
			}
		}
	}
	slices.Sort(nodes)
	slices.SortStableFunc(good, func(a, b history.Op) int { return cmp.Compare(a.Return, b.Return) })
	faults := slices.Clone(h.Faults)
	slices.SortStableFunc(faults, func(a, b history.Fault) int { return cmp.Compare(a.Start, b.Start) })

	outages := make([]Outage, 0, len(faults))
	for i, f := range faults {
		// Faults are in order of their starts. One that begins before the others have ended prolongs the outage.
		mended, horizon := f.Stop, int64(1<<63-1)
		for _, g := range faults[:i] {
			mended = max(mended, g.Stop)
		}
		for _, g := range faults[i+1:] {
			if g.Start >= mended {
				horizon = g.Start
				break
			}
			mended = max(mended, g.Stop)
		}
		o := Outage{Fault: f}
		for _, n := range nodes {
			took := firstSuccess(good, n, mended, horizon)
			if took < 0 && !stays(good, n, f) {
				continue
			}
			if took < 0 || took > o.Recovery {
				o.Recovery, o.Slowest = took, n
			}
			if took < 0 {
				break
			}
		}
		o.Silence = silence(good, f.Start, mended+max(0, int64(o.Recovery)))
		outages = append(outages, o)
	}
	return outages
}

// stays reports whether a node served before a fault, and also after it. Other nodes have joined or left.
func stays(good []history.Op, node string, f history.Fault) bool {
	before := slices.ContainsFunc(good, func(o history.Op) bool { return o.Node == node && o.Return < f.Start })
	return before && slices.ContainsFunc(good, func(o history.Op) bool { return o.Node == node && o.Call >= f.Stop })
}

// firstSuccess returns the time from since to the end of the first success at node that began after since. If there is
// none before horizon, it returns -1.
func firstSuccess(good []history.Op, node string, since, horizon int64) time.Duration {
	for i := range good {
		o := &good[i]
		if o.Node == node && o.Call >= since && o.Return < horizon {
			return time.Duration(o.Return - since)
		}
	}
	return -1
}

// silence returns the longest time between two successes that overlaps [from, to].
func silence(good []history.Op, from, to int64) time.Duration {
	var longest, last int64
	for i := range good {
		at := good[i].Return
		if i > 0 && at >= from && last <= to {
			longest = max(longest, at-last)
		}
		last = at
	}
	if len(good) > 0 && last < to {
		longest = max(longest, to-max(last, from))
	}
	return time.Duration(longest)
}
