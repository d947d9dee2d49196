package checker

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// TTLBounds bounds how long a key may outlive its TTL.
type TTLBounds struct {
	Clocks
	// Late is the bound without faults.
	Late time.Duration
	// Settle is added to the end of every fault, for the election after it: time without a leader does not count for a
	// lease. On a busy machine there are elections without a fault, which show as silences of the history.
	Settle time.Duration
}

// TTL checks keys with a TTL: a key never expires before its TTL, by real time; it expires within a bound after it; an
// expired key does not reappear; and PTTL's replies are consistent with that.
//
//	set     ttl        (each key once, before anything else)
//	expire  ttl -> [1], or [0] when the key is gone
//	alive       -> [1] or [0]
//	pttl        -> [milliseconds], or [-2] when the key is gone
func TTL(b TTLBounds) Func {
	return func(h *history.History) Result {
		r := newResult("ttl", h.Count(history.OK))
		for key, ops := range h.ByKey() {
			checkTTL(r, key, ops, b, excuses(h, b))
		}
		return *r
	}
}

// life has the bounds of one key's lease at the time of an operation.
type life struct {
	earliest int64 // the key must exist until then
	latest   int64 // the key must be gone from then on, except for faults
	longest  int64 // the largest ttl asked for so far, in milliseconds
}

func checkTTL(r *Result, key string, ops []history.Op, b TTLBounds, excused []history.Span) {
	if len(ops) == 0 || ops[0].F != "set" || ops[0].Outcome != history.OK {
		return // the key may never have existed
	}
	var gone *history.Op // the first that found the key gone
	for i := range ops {
		o := &ops[i]
		if o.Outcome != history.OK || o.F == "set" {
			continue
		}
		l := lifeAt(ops, o, b)
		dead := o.Out(0) == 0 && o.F != "pttl" || o.Out(0) == -2
		switch {
		case dead && o.Return < l.earliest:
			r.find("%s: died %s early: %s after %s", key, time.Duration(l.earliest-o.Return), o, &ops[0])
		case dead:
			if gone == nil || o.Return < gone.Return {
				gone = o
			}
		case l.latest < math.MaxInt64 && o.Call > l.latest+int64(b.Late)+within(excused, ops[0].Call, o.Call):
			r.find("%s: outlived its ttl by %s: %s after %s", key, time.Duration(o.Call-l.latest), o, &ops[0])
		}
		if o.F == "pttl" && !dead {
			checkRemaining(r, key, o, l, b)
		}
	}
	for i := range ops {
		o := &ops[i]
		alive := o.F == "pttl" && o.Out(0) != -2 || o.F != "pttl" && o.F != "set" && o.Out(0) == 1
		if gone != nil && alive && o.Outcome == history.OK && o.Call > gone.Return {
			r.find("%s: came back: %s, though before it began: %s", key, o, gone)
		}
	}
}

// lifeAt returns the bounds for o, by the set and every extension that may have taken effect by then.
func lifeAt(ops []history.Op, o *history.Op, b TTLBounds) life {
	set := &ops[0]
	l := life{
		earliest: set.Call + b.shortest(set.In(0)),
		latest:   set.Return + b.longest(set.In(0)),
		longest:  set.In(0),
	}
	for i := range ops {
		e := &ops[i]
		if e.F != "expire" || e.Outcome == history.Fail || e == o || e.Call > o.Return {
			continue
		}
		l.longest = max(l.longest, e.In(0))
		switch {
		case e.Outcome == history.Info:
			l.latest = math.MaxInt64 // the change may take effect at any time
		case e.Out(0) == 0:
		default:
			// While the change is in flight, only the former lease is certain.
			if e.Return < o.Call {
				l.earliest = max(l.earliest, e.Call+b.shortest(e.In(0)))
			}
			if l.latest < math.MaxInt64 {
				l.latest = max(l.latest, e.Return+b.longest(e.In(0)))
			}
		}
	}
	return l
}

// excuses returns the times that do not count for a lease, as there may have been no leader: each fault that is an
// excuse, with the time to settle, and each time in which no client got a reply, for whatever reason. The spans do not
// overlap.
func excuses(h *history.History, b TTLBounds) []history.Span {
	spans := slices.Clone(h.Silences)
	for _, f := range h.Faults {
		if !f.NoExcuse {
			spans = append(spans, history.Span{Start: f.Start, Stop: f.Stop + int64(b.Settle)})
		}
	}
	slices.SortFunc(spans, func(a, b history.Span) int { return cmp.Compare(a.Start, b.Start) })
	var apart []history.Span
	for _, s := range spans {
		if n := len(apart); n > 0 && s.Start <= apart[n-1].Stop {
			apart[n-1].Stop = max(apart[n-1].Stop, s.Stop)
			continue
		}
		apart = append(apart, s)
	}
	return apart
}

// within returns the part of the spans between from and to, in nanoseconds.
func within(spans []history.Span, from, to int64) int64 {
	var sum int64
	for _, s := range spans {
		sum += max(0, min(s.Stop, to)-max(s.Start, from))
	}
	return sum
}

// touches reports whether an instant of the spans is between from and to, inclusive.
func touches(spans []history.Span, from, to int64) bool {
	return slices.ContainsFunc(spans, func(s history.Span) bool { return s.Start <= to && s.Stop >= from })
}

// checkRemaining checks the reply of PTTL for a key that exists.
func checkRemaining(r *Result, key string, o *history.Op, l life, b TTLBounds) {
	said := o.Out(0)
	if said > l.longest {
		r.find("%s: %s, more than any ttl asked for (%d)", key, o, l.longest)
	}
	if end := o.Return + int64(float64(said+1)*(1+b.Drift)*float64(time.Millisecond)); end < l.earliest {
		r.find("%s: %s, %s less than what is left", key, o, time.Duration(l.earliest-end))
	}
}
