package checker

import (
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// outInLine is the output of an acquire with the time at which the client learned that it was in the queue, in
// nanoseconds on the run's clock, or 0 if it was granted at once.
const outInLine = 2

// InLine checks that a queue is first in, first out: a client that learned that it was in the queue before another one
// sent its request is granted the lock first, unless it left. It reads acquires of one mode (Exclusive) with the output
//
//	[1, fence, time at which the client learned that it was in the queue]
func InLine(h *history.History) Result {
	r := newResult("in line", countGrants(h))
	for key, ops := range h.ByKey() {
		var grants []*history.Op
		for i := range ops {
			if o := &ops[i]; o.F == "acquire" && o.Outcome == history.OK && o.Out(0) == 1 {
				grants = append(grants, o)
			}
		}
		for _, a := range grants {
			if a.Out(outInLine) == 0 {
				continue
			}
			r.Counts["waited"]++
			for _, b := range grants {
				if a.Out(outInLine) < b.Call && b.Out(1) < a.Out(1) && !hasAskedBefore(ops, b) {
					r.find("%s: overtaken: %s was in line at %.3f, then came %s", key, a, seconds(a.Out(outInLine)), b)
				}
			}
		}
	}
	return *r
}

// hasAskedBefore reports whether the owner of b had an earlier request, from which its position or hold may date.
func hasAskedBefore(ops []history.Op, b *history.Op) bool {
	return slices.ContainsFunc(ops, func(o history.Op) bool {
		return o.F == "acquire" && o.Call < b.Call && o.In(InOwner) == b.In(InOwner)
	})
}

// Deserted is the reason of the unknown outcome of an acquire whose client left the queue by closing its connection.
const Deserted = "left the line with its connection"

// NoneDeserted checks that no client is granted a lock long after its connection was closed. A grant at the moment of
// the close is possible; then no other client holds the lock later with a smaller fence.
func NoneDeserted(b TTLBounds) Func {
	return func(h *history.History) Result {
		r := newResult("none deserted", countGrants(h))
		excused := excuses(h, b)
		for key, ops := range h.ByKey() {
			for i := range ops {
				if o := &ops[i]; o.F == "acquire" && o.Error == Deserted {
					r.Counts["deserted"]++
					findDeserted(r, key, ops, o, b, excused)
				}
			}
		}
		return *r
	}
}

// findDeserted looks for a hold of an owner that left, and for another one that had a smaller fence and was released
// too long after that.
func findDeserted(r *Result, key string, ops []history.Op, left *history.Op, b TTLBounds, excused []history.Span) {
	for i := range ops {
		seen := &ops[i]
		if seen.F != "check" || seen.In(0) != left.In(0) || seen.Outcome != history.OK || seen.Out(0) == 0 {
			continue
		}
		for j := range ops {
			o := &ops[j]
			if o.F != "acquire" || o.Outcome != history.OK || o.Out(0) == 0 || o.Out(1) >= seen.Out(1) {
				continue
			}
			for k := range ops {
				gone := &ops[k]
				if gone.F == "release" && gone.In(0) == o.In(0) && gone.Outcome == history.OK && gone.Out(0) == 1 &&
					gone.Call > left.Return+int64(b.Late) && within(excused, left.Call, seen.Return) == 0 {
					r.find("%s: granted to one who had left: %s at %.3f, though %s gave the lock back later and had the fence %d: %s",
						key, left, seconds(left.Return), gone, o.Out(1), seen)
					return
				}
			}
		}
	}
}

// WaitBounds bounds the duration of waits.
type WaitBounds struct {
	Clocks
	// For Late and Settle see [TTLBounds].
	Late, Settle time.Duration
	// Vain is the wait in milliseconds after which a client must be granted the lock, as no client keeps it for long, 0
	// if unknown.
	Vain int64
}

// Waits checks that no wait ends before its timeout, that each wait is answered in time, and that no client waits for a
// free lock. It reads acquires as [NativeLock] does.
func Waits(b WaitBounds) Func {
	return func(h *history.History) Result {
		r := newResult("waits", h.Count(history.OK))
		excused := excuses(h, TTLBounds{Clocks: b.Clocks, Settle: b.Settle})
		for i := range h.Ops {
			if o := &h.Ops[i]; o.F == "acquire" && o.In(InWait) > 0 && o.Outcome != history.Fail {
				checkWait(r, o, b, excused)
			}
		}
		return *r
	}
}

func checkWait(r *Result, o *history.Op, b WaitBounds, excused []history.Span) {
	pardon := within(excused, o.Call, o.Return)
	late := o.Call + b.longest(o.In(InWait)) + int64(b.Late) + pardon
	refused := o.Outcome == history.OK && o.Out(0) == 0
	timedOut := o.Outcome == history.Info && strings.HasPrefix(o.Error, "timed out")
	if refused {
		r.Counts["ended by time"]++
	}
	switch {
	case refused && o.Return < o.Call+b.shortest(o.In(InWait)):
		r.find("%s: a wait ended early: %s", o.Key, o)
	case refused && b.Vain > 0 && o.In(InWait) >= b.Vain && pardon == 0:
		r.find("%s: waited in vain: %s", o.Key, o)
	case (o.Outcome == history.OK && o.Out(0) == 1 || refused) && o.Return > late:
		r.find("%s: a wait ended late: %s", o.Key, o)
	case timedOut && o.Return > late:
		r.find("%s: a wait was never answered: %s", o.Key, o)
	}
}

// Leftovers checks that no lock, session or key exists once every hold, wait and session must have ended.
//
//	left -> [number of locks, rows of LOCK.LIST, rows of SESSION.LIST, keys]
func Leftovers(h *history.History) Result {
	r := Result{Name: "nothing left", Verdict: Unknown, Counts: map[string]int{}}
	for i := range h.Ops {
		o := &h.Ops[i]
		if o.F != "left" || o.Outcome != history.OK {
			continue
		}
		r.Looked++
		if r.Verdict == Unknown {
			r.Verdict = Valid
		}
		if slices.ContainsFunc(o.Output, func(n int64) bool { return n != 0 }) {
			r.find("left behind (locks, holders and waiters, sessions, keys): %s", o)
		}
	}
	if r.Verdict == Unknown {
		r.Findings = append(r.Findings, "no client looked: nothing was shown")
	}
	return r
}
