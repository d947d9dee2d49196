package checker

import (
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// Reasons of a loss, as the input of "lost" has them.
const (
	ReasonExpired = iota + 1
	ReasonSession
	ReasonBroken
	ReasonFlushed
	ReasonUnknown
)

// Notices checks what holders are told unasked: each loss is told, none is told that did not take place.
// Beside the operations of [NativeLock] it reads
//
//	lost    owner, fence, reason   a push that came
//	untold  owner, fence           the connection stands on which the lock was acquired, the holder has learned of the
//	                               loss by a reply, and no push came
func Notices(b TTLBounds) Func {
	return func(h *history.History) Result {
		r := newResult("notices", h.Count(history.OK))
		excused := excuses(h, b)
		keys, byKey := h.ByKey()
		for _, key := range keys {
			checkNotices(r, key, byKey[key], b, excused)
		}
		return *r
	}
}

func checkNotices(r *Result, key string, ops []history.Op, b TTLBounds, excused []history.Span) {
	told := map[[2]int64]*history.Op{}
	breaks := breaksOf(ops)
	for i := range ops {
		o := &ops[i]
		name := [2]int64{o.In(0), o.In(1)}
		switch o.F {
		case "lost":
			r.Counts["told"]++
			if p := told[name]; p != nil {
				r.find("%s: told twice: %s, and %s", key, p, o)
			}
			told[name] = o
			checkLost(r, key, ops, o, b, len(breaks[o.In(0)]) > 0 && breaks[o.In(0)][0] <= o.Return)
		case "untold":
			from := o.Call - int64(10*time.Second)
			if within(excused, from, o.Return) == 0 {
				r.find("%s: a loss was not told: %s", key, o)
			}
		}
	}
}

// checkLost looks for what denies a notice: a lease that ran on, or a hold that was seen later.
func checkLost(r *Result, key string, ops []history.Op, lost *history.Op, b TTLBounds, broken bool) {
	var until int64
	for i := range ops {
		o := &ops[i]
		if o.F == "release" && o.In(0) == lost.In(0) && o.Call < lost.Return && lost.In(2) == ReasonUnknown {
			// The node got a snapshot in place of the entries that say how the hold ended.
			broken = true
		}
		if o.In(0) != lost.In(0) || o.Outcome != history.OK || o.Out(0) != 1 || o.Out(1) != lost.In(1) {
			continue
		}
		switch o.F {
		case "acquire", "extend":
			if o.Return < lost.Return {
				until = o.Call + b.shortest(o.In(InTTL))
			}
		case "check":
		default:
			continue
		}
		if o.Call > lost.Return {
			r.find("%s: a false notice: %s, and then %s", key, lost, o)
		}
	}
	if !broken && lost.Return < until {
		r.find("%s: a false notice: %s, though the hold runs until %.3f", key, lost, seconds(until))
	}
}

// Kept checks that a session lives as long as the connection that it is attached to, while nothing is broken.
//
//	unkept owner, fence, since   a reply says that the session is gone, on a connection that stands since then; the
//	                             command that attached the session to the connection went out then
func Kept(b TTLBounds) Func {
	return func(h *history.History) Result {
		r := newResult("kept sessions", h.Count(history.OK))
		excused := excuses(h, b)
		for i := range h.Ops {
			if o := &h.Ops[i]; o.F == "unkept" && !touches(excused, o.In(2), o.Return) {
				r.find("%s: a session ended though its connection stood: %s", o.Key, o)
			}
		}
		return *r
	}
}
