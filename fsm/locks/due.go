package locks

import (
	"slices"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// engine runs the due events of a store, and grants its locks to waiters. [Table] adds the calls that clients cause.
type engine struct{ store }

// Sweep runs due events of all sessions and locks while the budget lasts, in the order of [engine.runFirstEvent]. While
// it spends the third quarter of the budget, it skips locks without a queue: nobody waits for their leases to end.
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

// runFirstEvent runs one due event and reports whether there was one. Waiters of an ended node come first, then locks
// of flushed databases, then the session or lock that is due first. Locks without a queue are skipped unless
// includeUncontended is true.
func (e *engine) runFirstEvent(includeUncontended bool) bool {
	defer e.finishStep()
	if len(e.nodeEnds) > 0 {
		e.removeNodeWaiter()
		return true
	}
	if d, l := e.firstFlushed(); l != nil && (includeUncontended || l.contended()) {
		e.moveFlushed(e.mutable(l))
		return true
	} else if d != nil && l == nil {
		e.charge(0, 1)
		e.flushedDatabases = slices.DeleteFunc(e.flushedDatabases, func(o *database) bool { return o == d })
		return true
	}
	l := e.firstLock(includeUncontended)
	id, end := e.nextSessionEnd()
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

// runLockEvent runs the first event of a lock that is due before untilMillis, and then grants the queue. It reports
// whether there was such an event. The event is the end of the hold h, whose last instant is holdEnd, or a timer of the
// lock.
//
// At one instant, ends of holds run first, then the end of the delay, pending grants, and ends of waits. Therefore a
// waiter is granted a lock that is released at the last instant of its wait.
func (e *engine) runLockEvent(l *lock, h *hold, holdEnd, untilMillis int64) bool {
	delayEnd, grant, waitEnd, w := e.timers(l)
	first := min(holdEnd, delayEnd, grant, waitEnd)
	if first >= untilMillis {
		return false
	}
	e.setReadAfter(first)
	switch first {
	case holdEnd:
		e.loseHold(l, h, e.lossOf(l, h))
	case delayEnd:
		e.charge(1, 0)
		l.ext.delayEnd = 0
	case grant: // the call of grantQueue below runs it
	default:
		e.expireWait(w)
	}
	e.wakeQueue(l)
	e.grantQueue(l, true)
	return true
}

// setReadAfter sets readAt to the millisecond after an instant, but to now at the latest.
func (e *engine) setReadAfter(instant int64) { e.readAt = min(e.now, instant+1) }

// settle runs the events of a lock that are due before untilMillis, while the budget lasts. It returns the mutable
// lock, or nil if the lock is nil. Ended holds are removed even if the budget is spent; [MaxHolders] bounds their
// number.
func (e *engine) settle(l *lock, untilMillis int64) *lock {
	if l == nil {
		return nil
	}
	l = e.mutable(l)
	if e.flushOf(l) != nil {
		e.moveFlushed(l)
	}
	if e.dueOf(l) >= untilMillis && !e.hasEndedHold(l, untilMillis) {
		return l
	}
	ended := e.endedHolds(l, untilMillis)
	next := func() (*hold, int64) {
		for ; len(ended) > 0; ended = ended[1:] {
			if h := ended[0]; l.holdOf(h.owner) == h {
				return h, e.lossOf(l, h).at
			}
		}
		return nil, noDeadline
	}
	more := true
	for more && e.hasBudget() {
		h, end := next()
		more = e.runLockEvent(l, h, end, untilMillis)
	}
	for h, _ := next(); h != nil; h, _ = next() {
		e.loseHold(l, h, e.lossOf(l, h))
	}
	if l.ext != nil && l.ext.delayEnd != 0 && l.ext.delayEnd < untilMillis {
		l.ext.delayEnd = 0
		e.wakeQueue(l)
	}
	e.readAt = e.now
	return l
}

// settleKey settles the lock of a key. It returns the mutable lock, or nil if the key has no lock.
func (e *engine) settleKey(db int, key string) *lock { return e.settle(e.find(db, key), e.now) }

// Settle runs the due events of the lock of a key, while the budget lasts. All methods that change the lock of a key
// settle the lock first.
func (e *engine) Settle(db int, key string) {
	e.settleKey(db, key)
	e.finishStep()
}

// hasEndedHold reports whether a hold of the lock ended before untilMillis.
func (e *engine) hasEndedHold(l *lock, untilMillis int64) bool {
	if _, end := l.firstLease(); end < untilMillis {
		return true
	}
	if l.hold != nil {
		return e.hasEnded(l, l.hold, untilMillis)
	}
	return l.holders() > 0 && l.ext.sessionHolds > 0 && e.hasEndedSession(untilMillis) &&
		slices.ContainsFunc(l.holds(), func(h *hold) bool { return e.hasEnded(l, h, untilMillis) })
}

// endedHolds returns the holds of the lock that ended before untilMillis, in the order of their ends.
func (e *engine) endedHolds(l *lock, untilMillis int64) (ended []*hold) {
	if !e.hasEndedHold(l, untilMillis) {
		return nil
	}
	for _, h := range l.holds() {
		if e.hasEnded(l, h, untilMillis) {
			ended = append(ended, h)
		}
	}
	e.charge(0, l.holders()/ChangeUnits)
	e.sortByEnd(l, ended)
	return ended
}

// hasDueBeforeGrant reports whether the lock has a due event that must run before a grant at readAt. An end of a wait
// at the same instant runs after the grant.
func (e *engine) hasDueBeforeGrant(l *lock) bool {
	if e.flushOf(l) != nil || e.hasEndedHold(l, e.readAt) {
		return true
	}
	delayEnd, grant, waitEnd, _ := e.timers(l)
	return min(delayEnd, grant) < e.readAt || waitEnd < e.readAt-1
}

// runSessionEnd ends a session whose deadline has passed. The exception is a session whose own lease has expired, but
// whose node has renewed its attached sessions since that lease began. Such a session moves from sessionEnds to
// sessionsByNode: it ends when its node has been silent for the lease.
func (e *engine) runSessionEnd(id uint64, end int64) {
	s := e.mutableSession(id)
	if last := e.endOf(s); s.hasOwnLease && !s.endPending && last > end {
		e.charge(1, 0)
		e.unschedule(s)
		e.sessionsByNode.Set(sessionKey{s.origin, s.lease, s.id})
		return
	}
	e.endSession(id, e.endOf(s))
}

// endSession ends a session, whose last instant is endMillis, with all its waiters and holds. The queues of its locks
// are granted after its last hold has been removed, because the loss of a hold may start a delay.
func (e *engine) endSession(id uint64, endMillis int64) {
	s := e.mutableSession(id)
	connected := s.origin != nil && !s.endPending
	e.emit(Event{
		Kind: SessionEnded, Session: id, LeaseMillis: s.lease, HeldMillis: endMillis - s.opened, Client: s.client(),
		Attached: s.client(),
	})
	e.emitLateSession(s, endMillis)
	e.unschedule(s)
	s.endPending, s.deadline = true, endMillis
	e.charge(1, 0)
	e.events = slices.Grow(e.events, 2*int(s.holds)) // a Lost for each hold, and a Removed for most locks
	for s = e.session(id); s.waiters > 0; s = e.session(id) {
		w, _ := seek(e.waitersBySession, &waiter{session: id})
		e.dismiss(w, ErrNoSession)
	}
	for h := e.firstHold(id); h != nil; h = e.firstHold(id) {
		l := e.findMutable(int(h.db), h.key)
		if e.hasBudget() && (e.dueOf(l) < endMillis || e.flushOf(l) != nil) {
			e.settle(l, endMillis)
		}
		e.setReadAfter(endMillis)
		if l.holdOf(h.owner) == h {
			e.loseHold(l, h, e.lossOf(l, h))
		}
	}
	e.setReadAfter(endMillis)
	s = e.mutableSession(id)
	e.bytes -= s.bytes()
	e.sessionsByID.Delete(s)
	if connected {
		e.detach(s)
	}
}

// NextDue returns the instant at which the next event is due, which is one millisecond after its deadline. Waiters of
// an ended node and locks of a flushed database are due now. It reports false if there is no event.
func (s *store) NextDue() (millis int64, ok bool) {
	switch due := s.firstDue(); due {
	case noDeadline:
		return 0, false
	case minInstant:
		return s.now, true
	default:
		return due + 1, true
	}
}

// firstDue returns the earliest deadline of all sessions and locks. It returns minInstant if there are waiters of an
// ended node or locks of a flushed database, and noDeadline if there is no event.
func (s *store) firstDue() int64 {
	if len(s.nodeEnds)+len(s.flushedDatabases) > 0 {
		return minInstant
	}
	_, due := s.nextSessionEnd()
	if l := s.firstLock(true); l != nil {
		due = min(due, l.due)
	}
	return due
}

// HasAnyDue reports whether an event of any session or lock is due at nowMillis.
func (s *store) HasAnyDue(nowMillis int64) bool { return s.firstDue() < nowMillis }

// HasDue reports whether [Table.Settle] would change the lock of a key at nowMillis. It has false positives: while the
// event of any session is due, HasDue may report true for a lock that only other sessions hold or wait for.
func (s *store) HasDue(db int, key string, nowMillis int64) bool {
	l := s.peek(db, key)
	if l == nil {
		return len(s.flushedDatabases) > 0 && s.search(new(lock), db, key, keyspace.Hash(key)) != nil
	}
	switch {
	case l.due < nowMillis, l.hold != nil && s.hasEnded(l, l.hold, nowMillis):
		return true
	case l.ext == nil:
		return false
	}
	return l.ext.sessionHolds+l.ext.sessionWaits > 0 && s.hasEndedSession(nowMillis)
}

// lapseError returns [ErrNodeEnded] or [ErrNoSession] if the node or the session of a waiter has ended, and nil
// otherwise. A waiter with such an error gets no grant.
func (e *engine) lapseError(w *waiter) error {
	switch {
	case e.hasNodeEnded(w):
		return ErrNodeEnded
	case w.session != 0 && !e.isSessionOpen(w.session, e.now):
		return ErrNoSession
	}
	return nil
}

// expireWait ends a wait or a grace whose deadline has passed. After the wait, the waiter becomes absent if it has a
// grace. Otherwise it leaves its queues.
func (e *engine) expireWait(w *waiter) {
	if err := e.lapseError(w); err != nil || w.absent {
		e.dismiss(w, err)
		return
	}
	e.charge(1, 0)
	for _, key := range w.keys() {
		e.emit(e.waitEvent(TimedOut, w, key))
	}
	event := e.waitEndedEvent(w, 0, nil)
	event.ByTime = true
	e.emit(event)
	if w.grace <= 0 {
		e.dequeueWaiter(w)
		e.emitLeft(w, OutOfTime)
	} else {
		kept := *w
		kept.absent, kept.deadline = true, addSaturating(w.deadline, w.grace)
		e.replaceWaiter(w, &kept)
	}
	e.wakeQueuesOf(w)
}

// removeNodeWaiter removes one ended waiter of the first node in nodeEnds. If that node has no more such waiters, it
// removes the node from nodeEnds.
func (e *engine) removeNodeWaiter() {
	if w := e.firstWaiterOf(e.nodeEnds[0].Origin.Node); w != nil && e.hasNodeEnded(w) {
		e.dismiss(w, ErrNodeEnded)
		return
	}
	e.charge(1, 0)
	e.nodeEnds = slices.Delete(e.nodeEnds, 0, 1)
}

// finishStep grants the woken queues and normalizes the touched locks. Each call that changes locks ends with it.
func (e *engine) finishStep() {
	for i := 0; i < len(e.wokenLocks); i++ {
		e.grantQueue(e.wokenLocks[i], false) // this may wake more locks
	}
	clear(e.wokenLocks)
	e.wokenLocks = e.wokenLocks[:0]
	for _, l := range e.touchedLocks {
		l.idAndFlags &^= flagTouched
		e.normalize(l)
	}
	clear(e.touchedLocks)
	e.touchedLocks = e.touchedLocks[:0]
	e.readAt, e.lastLookup = e.now, lastLookup{}
}
