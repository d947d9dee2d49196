package checker

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// part is a time in which an owner may act as a holder of a native lock: from the reply that confirmed the hold until
// the lease ends by the owner's own clock, or until the owner or an operator sends a command that ends the hold.
type part struct {
	Belief
	mode, permits, limit, count int64
}

// Capacity checks that an exclusive holder is alone, that the permits held never exceed the limit, and that no client
// is denied its hold before it can have ended. It reads the operations of [NativeLock].
func Capacity(c Clocks) Func {
	return func(h *history.History) Result {
		r := newResult("exclusion", countGrants(h))
		for key, ops := range h.ByKey() {
			parts := holdsOf(r, key, ops, c)
			r.Counts["grants"] += len(parts)
			findTooMany(r, key, parts)
		}
		return *r
	}
}

// breaksOf returns the instants at which breaks of each owner's hold were sent.
func breaksOf(ops []history.Op) map[int64][]int64 {
	breaks := map[int64][]int64{}
	for i := range ops {
		if o := &ops[i]; (o.F == "break" || o.F == "close") && o.Outcome != history.Fail {
			breaks[o.In(InOwner)] = append(breaks[o.In(InOwner)], o.Call)
		}
	}
	return breaks
}

// cut returns the first instant between from and until at which a break of an owner's hold was sent, or until.
func cut(breaks []int64, from, until int64) int64 {
	for _, at := range breaks {
		if at >= from {
			return min(at, until)
		}
	}
	return until
}

// wordsOfHolders are the operations of holders on their own holds.
var wordsOfHolders = []string{"acquire", "extend", "check", "release", "downgrade"}

// holdsOf returns the parts of one key's holders in the order in which they began, and reports holds that were lost too
// early.
func holdsOf(r *Result, key string, ops []history.Op, c Clocks) []part {
	var parts []part
	last := map[int64]int{}
	acquires := map[int64]*history.Op{}
	breaks := breaksOf(ops)
	for i := range ops {
		o := &ops[i]
		owner := o.In(InOwner)
		n, held := last[owner]
		said := o.Outcome == history.OK && o.Out(0) == 1
		if o.F == "acquire" {
			acquires[owner] = o
		}
		switch {
		case !slices.Contains(wordsOfHolders, o.F):
		case said && (o.F == "acquire" || o.F == "extend"):
			until := cut(breaks[owner], o.Call, o.Call+c.shortest(o.In(InTTL)))
			if held && parts[n].Until >= o.Return {
				parts[n].Until = until
				parts[n].count += min(1, o.In(InCall))
			} else if until > o.Return {
				last[owner] = len(parts)
				parts = append(parts, newPart(o, until, acquires[owner]))
			}
		case !held:
		case o.Outcome == history.OK && o.Out(0) == 0:
			if b := &parts[n]; b.From <= o.Call && o.Return < b.Until {
				r.Counts["lost"]++
				r.find("%s: lost a hold that ran until %.3f: %s", key, seconds(b.Until), o)
			}
			parts[n].Until = min(parts[n].Until, o.Call)
			delete(last, owner)
		case o.F == "release" && (o.Outcome == history.Info || said && o.Out(1) == 0):
			parts[n].Until = min(parts[n].Until, o.Call)
			delete(last, owner)
		case o.F == "downgrade" && o.Outcome != history.Fail:
			shared := parts[n]
			shared.mode, shared.From = Shared, o.Return
			parts[n].Until = min(parts[n].Until, o.Call)
			last[owner] = len(parts)
			parts = append(parts, shared)
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(a.From, b.From) })
	return parts
}

// newPart returns the part that o begins, with the mode, the limit and the permits of the owner's last acquire a.
func newPart(o *history.Op, until int64, a *history.Op) part {
	p := part{Belief: Belief{o.In(InOwner), o.Return, until, o}}
	if a != nil {
		p.mode, p.limit, p.permits = a.In(InMode), a.In(InLimit), a.In(InPermits)
	}
	return p
}

// findTooMany reports each part that begins while others last that do not allow it.
func findTooMany(r *Result, key string, parts []part) {
	for i, b := range parts {
		permits := b.permits
		for _, a := range parts[:i] {
			until := min(a.Until, b.Until)
			if until <= b.From || a.Owner == b.Owner {
				continue
			}
			permits += a.permits
			if a.mode == b.mode && (b.mode == Shared || b.mode == Counted && permits <= b.limit) {
				continue
			}
			r.Counts["double grants"]++
			r.find("%s: too many holders for %s: %s, held until %.3f; then %s", key,
				time.Duration(until-b.From), a.Grant, seconds(a.Until), b.Grant)
			break
		}
	}
}

// Fences checks fencing tokens over all keys: a fence belongs to one owner, and a new hold has a larger fence than any
// that was returned before its owner sent the request.
func Fences(h *history.History) Result {
	r := newResult("fences", countGrants(h))
	type place struct {
		key   string
		owner int64
	}
	owners := map[int64]*history.Op{}
	open := map[place]bool{}         // owners with an earlier request, from which the hold may be
	floor := map[*history.Op]int64{} // the largest fence that was returned before the request
	source := map[int64]*history.Op{0: nil}
	var largest int64
	for _, m := range moments(h.Ops) {
		o := m.op
		if o.F != "acquire" {
			continue
		}
		at := place{o.Key, o.In(InOwner)}
		if !m.end {
			if floor[o] = largest; open[at] {
				floor[o] = math.MinInt64
			}
			open[at] = true
			continue
		}
		if o.Outcome != history.OK || o.Out(0) != 1 {
			continue
		}
		fence := o.Out(1)
		if p := owners[fence]; p != nil && p.In(InOwner) != o.In(InOwner) {
			r.find("fence %d was given twice: %s, and %s", fence, p, o)
		} else if p == nil && fence <= floor[o] {
			r.find("fence %d of %s is not larger than the fence of %s", fence, o, source[floor[o]])
		}
		owners[fence] = o
		if fence > largest {
			largest, source[fence] = fence, o
		}
	}
	return *r
}
