package locks

import (
	"slices"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// engine runs due events in a store, and grants queues.
type engine struct{ store }

// Sweep runs due events in the order of time, while the budget lasts. The third quarter of the budget is for sessions
// and for locks with a queue: the leases of other locks delay nobody, and may end later.
func (e *engine) Sweep() {
	half := max(0, e.units) / 2
	e.units -= half
	for e.hasBudget() && e.runFirstEvent(true) {
	}
	e.units += half - half/2
	for e.hasBudget() && e.runFirstEvent(false) {
	}
	e.units += half / 2
	for e.hasBudget() && e.runFirstEvent(true) {
	}
}

// runFirstEvent runs one due event: of waiters whose node has ended, of flushed databases, or of the sessions and locks
// by time. If not quiet, locks without a queue are left out. It reports whether an event was due.
func (e *engine) runFirstEvent(quiet bool) bool {
	defer e.finish()
	if len(e.nodeEnds) > 0 {
		e.removeNodeWaiter()
		return true
	}
	if d, l := e.firstFlushed(); l != nil && (quiet || l.contended()) {
		e.moveFlushed(e.mutable(l))
		return true
	} else if d != nil && l == nil {
		e.charge(0, 1)
		e.flushed = slices.DeleteFunc(e.flushed, func(o *database) bool { return o == d })
		return true
	}
	l := e.firstLock(quiet)
	id, end := e.nextEnd()
	switch {
	case end < e.now && !(l != nil && l.due < end):
		e.runSessionEnd(id, end)
	case l != nil && l.due < e.now:
		l = e.mutable(l)
		h, end := l.firstLease()
		e.runLockEvent(l, h, end, e.now)
	default:
		return false
	}
	return true
}

// runLockEvent runs the first event of a lock that is due before until, and grants the queue. The event is the end of
// hold h, at end, or one of the lock's timers. It reports whether an event was due.
//
// At one instant holds end first, then the delay, then the queue is granted, then waits end. So a request that waits
// until the very instant is granted.
func (e *engine) runLockEvent(l *lock, h *hold, end, until int64) bool {
	delay, grant, wait, w := e.timers(l)
	switch first := min(end, delay, grant, wait); {
	case first >= until:
		return false
	case first == end:
		e.setReadAfter(end)
		e.loseHold(l, h, e.lossOf(l, h))
	case first == delay:
		e.setReadAfter(delay)
		e.charge(1, 0)
		l.ext.delay = 0
	case first == grant:
		e.setReadAfter(grant)
	default:
		e.setReadAfter(wait)
		e.endWait(w)
	}
	e.wake(l)
	e.grantQueue(l, true)
	return true
}

// setReadAfter sets readAt to the millisecond after an instant, but not beyond now.
func (e *engine) setReadAfter(instant int64) { e.readAt = min(e.now, instant+1) }

// settle runs the events of a lock that are due before until, within the budget, and returns the mutable lock, or nil
// if l is nil. It removes all holds that have ended, whatever the budget: there are at most [MaxHolders].
func (e *engine) settle(l *lock, until int64) *lock {
	if l == nil {
		return nil
	}
	l = e.mutable(l)
	if e.flushOf(l) != nil {
		e.moveFlushed(l)
	}
	if e.dueOf(l) >= until && !e.hasEndedHold(l, until) {
		return l
	}
	ended := e.endedHolds(l, until)
	next := func() (*hold, int64) {
		for ; len(ended) > 0; ended = ended[1:] {
			if h := ended[0]; l.holdOf(h.owner) == h {
				return h, e.lossOf(l, h).at
			}
		}
		return nil, never
	}
	more := true
	for more && e.hasBudget() {
		h, end := next()
		more = e.runLockEvent(l, h, end, until)
	}
	for h, _ := next(); h != nil; h, _ = next() {
		e.loseHold(l, h, e.lossOf(l, h))
	}
	if l.ext != nil && l.ext.delay != 0 && l.ext.delay < until {
		l.ext.delay = 0
		e.wake(l)
	}
	e.readAt = e.now
	return l
}

// settleKey settles the lock of a key, and returns the mutable lock, or nil if there is none.
func (e *engine) settleKey(db int, key string) *lock { return e.settle(e.find(db, key), e.now) }

// Settle runs the due events of a key. Every other method with a key settles the key first.
func (e *engine) Settle(db int, key string) {
	e.settleKey(db, key)
	e.finish()
}

// hasEndedHold reports whether a hold of a lock has ended before an instant.
func (e *engine) hasEndedHold(l *lock, until int64) bool {
	if _, end := l.firstLease(); end < until {
		return true
	}
	if l.hold != nil {
		return e.hasEnded(l, l.hold, until)
	}
	return l.holders() > 0 && l.ext.sessionHolds > 0 && e.hasSessionEnd(until) &&
		slices.ContainsFunc(l.holds(), func(h *hold) bool { return e.hasEnded(l, h, until) })
}

// endedHolds returns the holds of a lock that have ended before an instant, in the order of their ends.
func (e *engine) endedHolds(l *lock, until int64) (ended []*hold) {
	if !e.hasEndedHold(l, until) {
		return nil
	}
	for _, h := range l.holds() {
		if e.hasEnded(l, h, until) {
			ended = append(ended, h)
		}
	}
	e.charge(0, l.holders()/ChangeUnits)
	e.sortByEnd(l, ended)
	return ended
}

// isDueFirst reports whether a lock has a due event that comes before a grant. At one instant waits end last.
func (e *engine) isDueFirst(l *lock) bool {
	if e.flushOf(l) != nil || e.hasEndedHold(l, e.readAt) {
		return true
	}
	delay, grant, wait, _ := e.timers(l)
	return min(delay, grant) < e.readAt || wait < e.readAt-1
}

// runSessionEnd ends a session whose deadline has passed. If the session's own lease is over, but its node was heard of
// later, the session is attached to the node again.
func (e *engine) runSessionEnd(id uint64, end int64) {
	s := e.mutableSession(id)
	if last := e.endOf(s); s.leased && !s.closed && last > end {
		e.charge(1, 0)
		e.unschedule(s)
		e.attached.Set(sessionKey{s.origin, s.lease, s.id})
		return
	}
	e.endSession(id, e.endOf(s))
}

// endSession ends a session with its waiters and holds; at is its last instant. No queue is granted before the last
// hold has ended, since that hold may start a delay.
func (e *engine) endSession(id uint64, at int64) {
	s := e.mutableSession(id)
	connected := s.origin != nil && !s.closed
	e.emit(Event{
		Kind: SessionEnded, Session: id, LeaseMillis: s.lease, HeldMillis: at - s.opened, Client: s.client(),
		Attached: s.client(),
	})
	e.emitLateSession(s, at)
	e.unschedule(s)
	s.closed, s.deadline = true, at
	e.charge(1, 0)
	e.events = slices.Grow(e.events, 2*int(s.holds)) // each hold has a Lost, and most locks a Removed
	for s = e.session(id); s.waiters > 0; s = e.session(id) {
		w, _ := seek(e.waitsOf, &waiter{session: id})
		e.dismiss(w, ErrNoSession)
	}
	for h := e.firstHold(id); h != nil; h = e.firstHold(id) {
		l := e.findMutable(int(h.db), h.key)
		if e.hasBudget() && (e.dueOf(l) < at || e.flushOf(l) != nil) {
			e.settle(l, at)
		}
		e.setReadAfter(at)
		if l.holdOf(h.owner) == h {
			e.loseHold(l, h, e.lossOf(l, h))
		}
	}
	e.setReadAfter(at)
	s = e.mutableSession(id)
	e.bytes -= s.bytes()
	e.byID.Delete(s)
	if connected {
		e.disconnect(s)
	}
}

// NextDue returns the instant at which the first event is due, a millisecond after its deadline. Waiters of an ended
// node and flushed databases are due now. ok: there is an event.
func (s *store) NextDue() (millis int64, ok bool) {
	switch due := s.firstDue(); due {
	case never:
		return 0, false
	case past:
		return s.now, true
	default:
		return due + 1, true
	}
}

// firstDue returns the first deadline, or past if waiters of an ended node or locks of a flushed database are left.
func (s *store) firstDue() int64 {
	if len(s.nodeEnds)+len(s.flushed) > 0 {
		return past
	}
	_, due := s.nextEnd()
	if l := s.firstLock(true); l != nil {
		due = min(due, l.due)
	}
	return due
}

// HasDueBetween reports whether an event becomes due between two instants.
func (s *store) HasDueBetween(after, until int64) bool { return after < until && s.firstDue() < until }

// HasDue reports whether settling a key at an instant would change anything. It may report true without need for a lock
// with a queue or with several holds, if a session holds it or waits for it, and any session has ended.
func (s *store) HasDue(db int, key string, now int64) bool {
	l := s.peek(db, key)
	if l == nil {
		return len(s.flushed) > 0 && s.search(new(lock), db, key, keyspace.Hash(key)) != nil
	}
	switch {
	case l.due < now, l.hold != nil && s.hasEnded(l, l.hold, now):
		return true
	case l.ext == nil:
		return false
	}
	return l.ext.sessionHolds+l.ext.sessionWaits > 0 && s.hasSessionEnd(now)
}

// whyLapsed returns why a waiter must not be granted any more, or nil.
func (e *engine) whyLapsed(w *waiter) error {
	switch {
	case e.hasNodeEnded(w):
		return ErrNodeEnded
	case w.session != 0 && !e.isOpen(w.session, e.now):
		return ErrNoSession
	}
	return nil
}

// endWait ends a wait by time. The grace begins; without a grace, or at its end, the waiter leaves the queue.
func (e *engine) endWait(w *waiter) {
	if err := e.whyLapsed(w); err != nil || w.absent {
		e.dismiss(w, err)
		return
	}
	e.charge(1, 0)
	for _, key := range w.keys() {
		e.emit(e.waitEvent(TimedOut, w, key))
	}
	told := e.waitEndedEvent(w, 0, nil)
	told.ByTime = true
	e.emit(told)
	if w.grace <= 0 {
		e.removeQueue(w)
		e.emitLeft(w, OutOfTime)
	} else {
		kept := *w
		kept.absent, kept.deadline = true, saturated(w.deadline, w.grace)
		e.replaceWaiter(w, &kept)
	}
	e.wakeAll(w)
}

// removeNodeWaiter removes one waiter of the first node in nodeEnds, or the node from nodeEnds if no such waiter is
// left.
func (e *engine) removeNodeWaiter() {
	if w := e.firstOf(e.nodeEnds[0].Origin.Node); w != nil && e.hasNodeEnded(w) {
		e.dismiss(w, ErrNodeEnded)
		return
	}
	e.charge(1, 0)
	e.nodeEnds = slices.Delete(e.nodeEnds, 0, 1)
}

// finish completes each call that changes locks: it grants the woken queues, and normalizes the touched locks.
func (e *engine) finish() {
	for i := 0; i < len(e.woken); i++ {
		e.grantQueue(e.woken[i], false) // this may wake more locks
	}
	clear(e.woken)
	e.woken = e.woken[:0]
	for _, l := range e.touched {
		l.head &^= flagTouched
		e.normalize(l)
	}
	clear(e.touched)
	e.touched = e.touched[:0]
	e.readAt, e.last = e.now, lastLookup{}
}
