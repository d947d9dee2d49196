package checker

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// Belief is a time in which a client may act as the holder of a lock: from the reply that granted it until the lease
// ends by the client's own clock, or until the client sends the release, whichever is first.
type Belief struct {
	Owner       int64
	From, Until int64 // nanoseconds since the run began
	Grant       *history.Op
}

// Exclusion checks that no two clients believe at the same time that they hold a lock, and that no client is denied its
// lock while its lease runs. It reads the operations of [OwnerLock].
func Exclusion(c Clocks) Func {
	return func(h *history.History) Result {
		r := newResult("exclusion", countGrants(h))
		for key, ops := range h.ByKey() {
			beliefs := Beliefs(ops, c)
			r.Counts["grants"] += len(beliefs)
			findTwoHolders(r, key, beliefs)
			findLost(r, key, ops, beliefs, c)
		}
		return *r
	}
}

func countGrants(h *history.History) int {
	n := 0
	for i := range h.Ops {
		if o := &h.Ops[i]; o.F == "acquire" && o.Outcome == history.OK && o.Out(0) == 1 {
			n++
		}
	}
	return n
}

// Beliefs returns the beliefs of one key's clients, in the order in which they began. An owner is a single attempt of a
// client, so the operations of an owner follow each other.
func Beliefs(ops []history.Op, c Clocks) []Belief {
	var beliefs []Belief
	last := map[int64]int{} // by owner: the latest belief
	for i := range ops {
		o := &ops[i]
		n, held := last[o.In(0)]
		granted := o.Outcome == history.OK && o.Out(0) == 1
		switch {
		case o.F == "acquire" && granted, o.F == "extend" && granted && held:
			end := o.Call + c.shortest(o.In(1))
			if o.F == "extend" && beliefs[n].Until >= o.Return {
				beliefs[n].Until = end
				continue
			}
			if end > o.Return {
				last[o.In(0)] = len(beliefs)
				beliefs = append(beliefs, Belief{o.In(0), o.Return, end, o})
			}
		case o.F == "release" && held, o.F == "extend" && o.Outcome == history.OK && held:
			// A client that is denied its lock ends its belief, too. findLost judges from the belief before the
			// question whether the denial came too early.
			beliefs[n].Until = min(beliefs[n].Until, o.Call)
			delete(last, o.In(0))
		}
	}
	slices.SortStableFunc(beliefs, func(a, b Belief) int { return cmp.Compare(a.From, b.From) })
	return beliefs
}

func findTwoHolders(r *Result, key string, beliefs []Belief) {
	// A new belief overlaps an earlier one if it overlaps the one that lasts longest.
	longest := -1
	for i, b := range beliefs {
		if b.Until <= b.From {
			continue
		}
		if longest >= 0 && beliefs[longest].Until > b.From && beliefs[longest].Owner != b.Owner {
			a := beliefs[longest]
			r.Counts["double grants"]++
			r.find("%s: two holders for %s: %s, held until %.3f; then %s", key,
				time.Duration(min(a.Until, b.Until)-b.From), a.Grant, seconds(a.Until), b.Grant)
		}
		if longest < 0 || b.Until > beliefs[longest].Until {
			longest = i
		}
	}
}

// findLost looks for replies that deny a lease, although it ran during the whole operation.
func findLost(r *Result, key string, ops []history.Op, beliefs []Belief, c Clocks) {
	full := fullLeases(ops, c)
	for i := range ops {
		o := &ops[i]
		if o.Outcome != history.OK {
			continue
		}
		switch {
		case (o.F == "release" || o.F == "extend") && o.Out(0) == 0:
			if until, ok := full[i]; ok && o.Return < until {
				r.Counts["lost"]++
				r.find("%s: lost a lease that ran until %.3f: %s", key, seconds(until), o)
			}
		case o.F == "holder":
			for _, b := range beliefs {
				if b.From <= o.Call && o.Return < b.Until && o.Out(0) != b.Owner {
					r.Counts["lost"]++
					r.find("%s: lost a lease that ran until %.3f (%s): %s", key, seconds(b.Until), b.Grant, o)
				}
			}
		}
	}
}

// fullLeases returns, for each denied release and extension, the end of the lease that the owner had at its call,
// unless an earlier operation of the owner may have ended it.
func fullLeases(ops []history.Op, c Clocks) map[int]int64 {
	type lease struct {
		until int64
		gone  bool // a release may have been applied
	}
	leases := map[int64]*lease{}
	ends := map[int]int64{}
	for i := range ops {
		o := &ops[i]
		l := leases[o.In(0)]
		switch {
		case o.F == "acquire" && o.Outcome == history.OK && o.Out(0) == 1:
			leases[o.In(0)] = &lease{until: o.Call + c.shortest(o.In(1))}
		case l == nil || l.gone:
		case o.F == "extend" && o.Outcome == history.OK && o.Out(0) == 1:
			l.until = o.Call + c.shortest(o.In(1))
		case (o.F == "extend" || o.F == "release") && o.Outcome == history.OK:
			ends[i] = l.until
			l.gone = true
		case o.F == "release" && o.Outcome == history.Info:
			l.gone = true
		}
	}
	return ends
}

func seconds(nanos int64) float64 { return time.Duration(nanos).Seconds() }
