package checker

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// The inputs of an operation on a native lock. The first two are those of [OwnerLock].
const (
	InOwner   = iota
	InTTL     // milliseconds; of a session, the rest that is certain
	InMode    // Exclusive, Shared or Counted
	InLimit   // of Counted
	InPermits // of Counted
	InWait    // milliseconds, NoWait, or 0 for no limit
	InDelay   // milliseconds
	InCall    // the id of a reentrant call, 0 if not reentrant
	InStrict  // 1 if no client waits and no loss delays on this key, so that a refusal implies an incompatible hold
)

// Modes of a native lock.
const (
	Exclusive = iota
	Shared
	Counted
)

// NoWait is the wait of an acquire that does not wait.
const NoWait = -1

// NativeFunctions are the operations of [NativeLock].
var NativeFunctions = Functions{
	Writes: []string{"acquire", "extend", "release", "downgrade", "break", "close"}, Reads: []string{"check"},
}

// nativeHold is the hold of an owner.
type nativeHold struct {
	owner, mode, permits, limit, count, call, delay int64
	fence                                           int64 // 0 if unknown; then it is larger than above
	above                                           int64
	until                                           int64 // the earliest instant at which the hold may end by itself
}

// nativeState is the model's state of a native lock. A hold whose lease may have ended is removed once an operation
// implies its end.
type nativeState struct {
	holds  []nativeHold // by owner
	closed int64        // no grant is possible before this instant
	now    int64        // a lower bound of the instants of the following operations
	fence  int64        // the largest one granted
}

// NativeLock is a native lock: exclusive, shared or counted, reentrant or not, with fences and delays. With some inputs
// left out, it is each of Hazelcast's five models: owner-aware, reentrant, fenced, reentrant and fenced, permits.
//
//	acquire   owner, ttl, …   -> [1, fence], [0] refused or not granted in time
//	extend    owner, ttl      -> [1, fence], [0] not the owner's
//	check     owner           -> [1, fence], [0]
//	downgrade owner           -> [1, fence], [0]
//	release   owner, all      -> [1, remaining count of the hold], [0]
//	break     owner, fence    -> [number of holds]
//	close     owner           the hold's session may have ended at any time until the return
//
// An acquire of unknown outcome may have been applied, and its hold may be returned at any time, since a node does so
// if the client has disconnected. If the same owner is granted the lock again, the hold is certain.
func NativeLock(c Clocks) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{nativeState{}} },
		Step: func(state, input, _ any) []any {
			var next []any
			for _, s := range state.(nativeState).step(c, input.(*history.Op)) {
				next = append(next, s)
			}
			return next
		},
		Equal: func(a, b any) bool {
			s, t := a.(nativeState), b.(nativeState)
			return s.closed == t.closed && s.now == t.now && s.fence == t.fence && slices.Equal(s.holds, t.holds)
		},
		DescribeOperation: describe,
		DescribeState:     func(state any) string { return state.(nativeState).String() },
	}
	return m.ToModel()
}

func (s nativeState) String() string {
	var b strings.Builder
	for _, h := range s.holds {
		fmt.Fprintf(&b, "%d has %d (mode %d, %d times, until %.3f) ", h.owner, h.fence, h.mode, h.count,
			time.Duration(h.until).Seconds())
	}
	return fmt.Sprintf("%sclosed until %.3f", b.String(), time.Duration(s.closed).Seconds())
}

// step returns the possible states after o, none if its outcome is impossible in s.
func (s nativeState) step(c Clocks, o *history.Op) []nativeState {
	end := o.Return
	if o.Outcome == history.Info {
		end = 1<<63 - 1
	}
	s.now = max(s.now, o.Call)
	if s.now > end {
		return nil
	}
	x := nativeStep{o: o, c: c, end: end}
	if o.Outcome == history.Info {
		return x.unknown(s)
	}
	switch {
	case o.F == "break":
		return x.broken(s)
	case o.F == "close":
		if i, held := s.find(o.In(InOwner)); held {
			h := s.holds[i]
			h.until = min(h.until, o.Call)
			s = s.with(h)
		}
		return []nativeState{s}
	case o.Out(0) == 0:
		return x.denied(s)
	case o.F == "acquire":
		return x.granted(s)
	}
	return x.confirmed(s)
}

// nativeStep is an operation that is placed at some instant until end.
type nativeStep struct {
	o   *history.Op
	c   Clocks
	end int64
}

// find returns the index of an owner's hold.
func (s nativeState) find(owner int64) (int, bool) {
	return slices.BinarySearchFunc(s.holds, owner, func(h nativeHold, o int64) int { return cmp.Compare(h.owner, o) })
}

// with returns the state with h in place of its owner's hold.
func (s nativeState) with(h nativeHold) nativeState {
	i, found := s.find(h.owner)
	s.holds = slices.Clone(s.holds)
	if found {
		s.holds[i] = h
	} else {
		s.holds = slices.Insert(s.holds, i, h)
	}
	return s
}

func (s nativeState) without(i int) nativeState {
	s.holds = slices.Delete(slices.Clone(s.holds), i, i+1)
	return s
}

// lost returns the state after a hold has expired.
func (s nativeState) lost(i int, end int64) (nativeState, bool) {
	h := s.holds[i]
	s.now = max(s.now, h.until)
	s.closed = max(s.closed, h.until+h.delay*int64(time.Millisecond))
	return s.without(i), h.until <= end
}

// denied returns the states after a refusal: the owner has no hold, and, if it is strict, an incompatible hold exists.
func (x nativeStep) denied(s nativeState) []nativeState {
	if i, held := s.find(x.o.In(InOwner)); held {
		var may bool
		if s, may = s.lost(i, x.end); !may {
			return nil
		}
	}
	if x.o.F == "acquire" && x.o.In(InStrict) == 1 && x.fits(s) {
		return nil
	}
	return []nativeState{s}
}

// fits reports whether a request is compatible with all holds of others.
func (x nativeStep) fits(s nativeState) bool {
	mode, sum := x.o.In(InMode), x.o.In(InPermits)
	for _, h := range s.holds {
		if h.owner == x.o.In(InOwner) {
			continue
		}
		if mode == Exclusive || h.mode == Exclusive || mode != h.mode {
			return false
		}
		sum += h.permits
	}
	return mode != Counted || sum <= x.o.In(InLimit)
}

// granted returns the states after a grant, of the owner's earlier hold or of a new one.
func (x nativeStep) granted(s nativeState) []nativeState {
	o := x.o
	fence := o.Out(1)
	var next []nativeState
	i, held := s.find(o.In(InOwner))
	if held {
		if n, ok := x.same(s, i); ok {
			h := n.holds[i]
			if o.In(InCall) != 0 && o.In(InCall) != h.call {
				h.count, h.call = h.count+1, o.In(InCall)
			}
			h.until = o.Call + x.c.shortest(o.In(InTTL))
			next = append(next, n.with(h))
		}
	}
	if fence <= s.fence {
		return next
	}
	if held {
		var may bool
		if s, may = s.lost(i, x.end); !may {
			return next
		}
	}
	for _, free := range x.makeRoom(s, 0) {
		h := x.hold(free)
		h.fence, h.until = fence, o.Call+x.c.shortest(o.In(InTTL))
		free.fence = fence
		next = append(next, free.with(h))
	}
	return next
}

// hold returns the hold that o requests.
func (x nativeStep) hold(s nativeState) nativeHold {
	o := x.o
	return nativeHold{
		owner: o.In(InOwner), mode: o.In(InMode), permits: o.In(InPermits), limit: o.In(InLimit), count: 1,
		call:  o.In(InCall),
		delay: o.In(InDelay), above: s.fence, until: o.Call,
	}
}

// same returns the state in which an owner's hold has the fence of the reply.
func (x nativeStep) same(s nativeState, i int) (nativeState, bool) {
	h, fence := s.holds[i], x.o.Out(1)
	if h.fence == 0 && fence > h.above {
		h.fence = fence
		s.fence = max(s.fence, fence)
		return s.with(h), true
	}
	return s, h.fence == fence
}

// makeRoom returns the states in which a request is compatible, after some holds from the given index on have ended.
func (x nativeStep) makeRoom(s nativeState, from int) []nativeState {
	if x.fits(s) {
		if s.closed > x.end {
			return nil
		}
		s.now = max(s.now, s.closed)
		return []nativeState{s}
	}
	var all []nativeState
	for i := from; i < len(s.holds); i++ {
		if n, may := s.lost(i, x.end); may {
			all = append(all, x.makeRoom(n, i)...)
		}
	}
	return all
}

// confirmed returns the states after an operation that found the owner's hold.
func (x nativeStep) confirmed(s nativeState) []nativeState {
	i, held := s.find(x.o.In(InOwner))
	if !held {
		return nil
	}
	if x.o.F == "release" {
		return x.released(s, i)
	}
	s, ok := x.same(s, i)
	if !ok {
		return nil
	}
	h := s.holds[i]
	switch x.o.F {
	case "extend":
		h.until = x.o.Call + x.c.shortest(x.o.In(InTTL))
	case "downgrade":
		h.mode = Shared
	}
	return []nativeState{s.with(h)}
}

func (x nativeStep) released(s nativeState, i int) []nativeState {
	h := s.holds[i]
	h.count--
	if x.o.In(1) == 1 {
		h.count = 0
	}
	switch {
	case x.o.Outcome == history.OK && x.o.Out(1) != h.count:
		return nil
	case h.count > 0:
		return []nativeState{s.with(h)}
	}
	return []nativeState{s.without(i)}
}

// broken returns the states after a break of an owner's hold with a fence.
func (x nativeStep) broken(s nativeState) []nativeState {
	i, held := s.find(x.o.In(InOwner))
	if held = held && (s.holds[i].fence == x.o.In(1) || s.holds[i].fence == 0); !held {
		if x.o.Out(0) == 0 {
			return []nativeState{s}
		}
		return nil
	}
	if x.o.Out(0) == 1 {
		return []nativeState{s.without(i)}
	}
	n, may := s.lost(i, x.end)
	if s.holds[i].fence == 0 {
		return []nativeState{s, n} // the hold may have another fence
	}
	if !may {
		return nil
	}
	return []nativeState{n}
}

// unknown returns the states after an operation of unknown outcome: with and without its effect.
func (x nativeStep) unknown(s nativeState) []nativeState {
	o := x.o
	next := []nativeState{s}
	i, held := s.find(o.In(InOwner))
	switch {
	case o.F == "acquire" && !held:
		for _, free := range x.makeRoom(s, 0) {
			next = append(next, free.with(x.hold(free)))
		}
	case !held:
	case o.F == "acquire":
		h := s.holds[i]
		if o.In(InCall) != 0 && o.In(InCall) != h.call {
			h.count, h.call = h.count+1, o.In(InCall)
		}
		h.until = min(h.until, o.Call+x.c.shortest(o.In(InTTL)))
		next = append(next, s.with(h))
		if n, may := s.lost(i, x.end); may {
			for _, free := range x.makeRoom(n, 0) {
				next = append(next, free.with(x.hold(free)))
			}
		}
	case o.F == "release":
		next = append(next, x.released(s, i)...)
	case o.F == "extend":
		h := s.holds[i]
		h.until = min(h.until, o.Call+x.c.shortest(o.In(InTTL)))
		next = append(next, s.with(h))
	case o.F == "downgrade":
		h := s.holds[i]
		h.mode = Shared
		next = append(next, s.with(h))
	case o.F == "break" && (s.holds[i].fence == o.In(1) || s.holds[i].fence == 0):
		next = append(next, s.without(i))
	}
	return next
}

// Reasons of a loss, as the input of "lost" has them.
const (
	ReasonExpired = iota + 1
	ReasonSession
	ReasonBroken
	ReasonFlushed
	ReasonUnknown
)

// Notices checks the pushes to holders: each loss is reported, and no other. Besides the operations of [NativeLock] it
// reads
//
//	lost    owner, fence, reason   a push that was received
//	untold  owner, fence           the connection that acquired the lock is open, the holder has learned of the loss by
//	                               a reply, and no push came
func Notices(b TTLBounds) Func {
	return func(h *history.History) Result {
		r := newResult("notices", h.Count(history.OK))
		excused := excuses(h, b)
		for key, ops := range h.ByKey() {
			checkNotices(r, key, ops, b, excused)
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

// checkLost looks for contradictions of a notice: a lease that had not ended, or a hold that was seen later.
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

// Held checks the holders that use a client library: no two at a time, and each is notified of its loss.
//
//	held   owner, fence   from call to return the library reported that the lock was held, and not that it was lost
//	untold owner, fence   a hold was broken, and the library did not report that in time
func Held(h *history.History) Result {
	r := newResult("held", h.Count(history.OK))
	for key, ops := range h.ByKey() {
		var last *history.Op // the hold that ends last
		slices.SortStableFunc(ops, func(a, b history.Op) int { return cmp.Compare(a.Call, b.Call) })
		for i := range ops {
			switch o := &ops[i]; {
			case o.F == "untold":
				r.find("%s: a loss was not told: %s", key, o)
			case o.F == "held":
				r.Counts["holds"]++
				if last != nil && o.Call < last.Return {
					r.find("%s: two holders for %s: %s, and %s", key, time.Duration(min(last.Return, o.Return)-o.Call), last, o)
				}
				if last == nil || o.Return > last.Return {
					last = o
				}
			}
		}
	}
	return *r
}

// Kept checks that a session does not end before the connection to which it is attached, except during faults.
//
//	unkept owner, fence, since   a reply says that the session has ended, on a connection that has been open since then;
//	                             the command that attached the session was sent at that time
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
