package locks

import (
	"slices"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// engine is a store that can run due events, and can grant locks to waiters. [Table] adds the requests of clients.
type engine struct{ store }

// Sweep runs due events of all sessions and locks while the budget lasts. [engine.runFirstEvent] decides which event
// is next. Sweep spends the first half of the budget on all events. In the third quarter it skips locks without a
// queue, because nobody waits for these locks. It spends the last quarter on all events again.
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

// runFirstEvent runs one due event, or reports false if it finds none. Waiters of an ended node come first, then
// flushed databases, and then the session or the lock with the earliest deadline. If includeUncontended is false,
// runFirstEvent skips locks without a queue.
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
	case end < e.now && !(l != nil && l.deadline < end):
		e.runSessionEnd(id, end)
	case l != nil && l.deadline < e.now:
		l = e.mutable(l)
		h, end := l.firstLease()
		e.runLockEvent(l, h, end, e.now)
	default:
		return false
	}
	return true
}

// runLockEvent runs the first event of lock l, and then grants the lock to the next waiters. If no event of the lock
// has a deadline before untilMillis, runLockEvent does nothing and reports false. The caller passes the hold h that
// ends first, with the last instant of the hold as holdEnd. Without such a hold, holdEnd is noDeadline.
//
// Events with the same deadline run in this order: ends of holds, the end of the delay, the pending grant, ends of
// waits. So if a hold and a wait end at the same instant, the waiter can still be granted the lock.
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
	case grant: // grantQueue, called below, makes the pending grant
	default:
		e.expireWait(w)
	}
	e.wakeQueue(l)
	e.grantQueue(l, true)
	return true
}

// setReadAfter sets readAt to one millisecond after an instant, but at most to now.
func (e *engine) setReadAfter(instant int64) { e.readAt = min(e.now, instant+1) }

// settle runs those events of lock l that have a deadline before untilMillis, while the budget lasts. Three kinds of
// events run even if the budget is spent: the move of a flushed lock, the ends of holds, and the end of a delay.
// [MaxHolders] bounds the number of holds. settle returns the lock as a record that the caller may change, or nil if l
// is nil.
func (e *engine) settle(l *lock, untilMillis int64) *lock {
	if l == nil {
		return nil
	}
	l = e.mutable(l)
	if e.flushOf(l) != nil {
		e.moveFlushed(l)
	}
	if e.firstDeadlineOf(l) >= untilMillis && !e.hasEndedHold(l, untilMillis) {
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
	for more := true; more && e.hasBudget(); {
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

// settleKey settles the lock of a key. It returns the lock as a record that the caller may change, or nil if the key
// has no lock.
func (e *engine) settleKey(db int, key string) *lock { return e.settle(e.find(db, key), e.now) }

// Settle settles the lock of a key: it runs the due events of the lock while the budget lasts. A caller needs Settle
// only before it reads the lock. All methods that take a key and change the lock of that key settle the lock
// themselves.
func (e *engine) Settle(db int, key string) {
	e.settleKey(db, key)
	e.finishStep()
}

// hasEndedHold reports whether the lock has a hold that ended before untilMillis.
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

// endedHolds returns the lock's holds that ended before untilMillis. The hold that ended first comes first.
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

// hasDueBeforeGrant reports whether the lock has a due event that must run before a grant at readAt. A wait with the
// deadline readAt-1 does not count, because a grant precedes the end of a wait with the same deadline.
func (e *engine) hasDueBeforeGrant(l *lock) bool {
	if e.flushOf(l) != nil || e.hasEndedHold(l, e.readAt) {
		return true
	}
	delayEnd, grant, waitEnd, _ := e.timers(l)
	return min(delayEnd, grant) < e.readAt || waitEnd < e.readAt-1
}

// runSessionEnd runs the due event of a session with the deadline end. Usually it ends the session. However, the
// session may have a lease of its own that has expired, while its node has renewed all attached sessions later.
// runSessionEnd moves such a session from sessionEnds to sessionsByNode. There, the session ends when its node has
// been silent for the duration of the lease.
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

// endSession ends a session with all its waiters and holds. endMillis is the last instant of the session. All holds
// are removed before the locks are granted to waiters, because each loss of a hold may start a delay, and a delay
// prevents grants.
func (e *engine) endSession(id uint64, endMillis int64) {
	s := e.mutableSession(id)
	connected := s.origin != nil && !s.endPending
	ended := e.emit(SessionEnded, 0, "")
	ended.Session, ended.LeaseMillis, ended.HeldMillis = id, s.lease, endMillis-s.opened
	ended.Client, ended.Attached = s.client(), s.client()
	e.emitLateSession(s, endMillis)
	e.unschedule(s)
	s.endPending, s.deadline = true, endMillis
	e.charge(1, 0)
	e.events = slices.Grow(e.events, 2*int(s.holds)) // each hold causes a Lost, and most locks cause a Removed
	for s = e.session(id); s.waiters > 0; s = e.session(id) {
		w, _ := seek(e.waitersBySession, &waiter{term: -int64(id)})
		e.dismiss(w, ErrNoSession)
	}
	for h := e.firstHold(id); h != nil; h = e.firstHold(id) {
		l := e.findMutable(int(h.db), h.key)
		if e.hasBudget() && (e.firstDeadlineOf(l) < endMillis || e.flushOf(l) != nil) {
			e.settle(l, endMillis)
		}
		e.setReadAfter(endMillis)
		if l.holdOf(h.owner) == &h.hold {
			e.loseHold(l, &h.hold, e.lossOf(l, &h.hold))
		}
	}
	e.setReadAfter(endMillis)
	s = e.mutableSession(id)
	e.changeSessions(s, -1)
	if connected {
		e.detach(s)
	}
}

// NextDue returns the time at which the next event is due. If an ended node or a flushed database is not removed yet,
// that is the current time. Otherwise it is one millisecond after the earliest deadline. If there is no deadline, ok
// is false.
func (s *store) NextDue() (millis int64, ok bool) {
	switch deadline := s.firstDeadline(); deadline {
	case noDeadline:
		return 0, false
	case minInstant:
		return s.now, true
	default:
		return deadline + 1, true
	}
}

// firstDeadline returns the earliest deadline of all sessions and locks, or noDeadline if there is none. If an ended
// node or a flushed database is not removed yet, firstDeadline returns minInstant.
func (s *store) firstDeadline() int64 {
	if len(s.nodeEnds)+len(s.flushedDatabases) > 0 {
		return minInstant
	}
	_, deadline := s.nextSessionEnd()
	if l := s.firstLock(true); l != nil {
		deadline = min(deadline, l.deadline)
	}
	return deadline
}

// HasAnyDue reports whether any event of the table is due at nowMillis.
func (s *store) HasAnyDue(nowMillis int64) bool { return s.firstDeadline() < nowMillis }

// HasDue reports whether [Table.Settle] may change the lock of a key at nowMillis. If HasDue reports false, Settle
// would change nothing. While the end of any session is due, HasDue may report true needlessly for a lock that has
// holds or waiters of other sessions.
func (s *store) HasDue(db int, key string, nowMillis int64) bool {
	l := s.peek(db, key)
	if l == nil {
		return len(s.flushedDatabases) > 0 && s.search(new(lock), db, key, keyspace.Hash(key)) != nil
	}
	switch {
	case l.deadline < nowMillis, l.hold != nil && s.hasEnded(l, l.hold, nowMillis):
		return true
	case l.ext == nil:
		return false
	}
	return l.ext.sessionHolds+l.ext.sessionWaits > 0 && s.hasEndedSession(nowMillis)
}

// lapseError returns [ErrNodeEnded] if the waiter's node has ended, [ErrNoSession] if the waiter's session has ended,
// and otherwise nil. A waiter with a lapse error is granted nothing.
func (e *engine) lapseError(w *waiter) error {
	switch {
	case e.hasNodeEnded(w):
		return ErrNodeEnded
	case w.term < 0 && !e.isSessionOpen(w.session(), e.now):
		return ErrNoSession
	}
	return nil
}

// expireWait runs the event of a waiter whose deadline has passed. If a wait ends and the waiter has a grace, the
// waiter becomes absent. If a wait without a grace ends, or if a grace ends, the waiter leaves its queues.
func (e *engine) expireWait(w *waiter) {
	e.charge(1, 0)
	if err := e.lapseError(w); err != nil || w.absent {
		e.dismiss(w, err)
		return
	}
	for _, key := range w.keys() {
		e.emitWait(TimedOut, w, key)
	}
	e.emitEndOfWait(w, 0, nil).ByTime = true
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

// removeNodeWaiter removes one waiter whose wait has ended with the first node in nodeEnds. If there is no such
// waiter, removeNodeWaiter removes the node from nodeEnds.
func (e *engine) removeNodeWaiter() {
	e.charge(1, 0)
	if w := e.firstWaiterOf(e.nodeEnds[0].Origin.Node); w != nil && e.hasNodeEnded(w) {
		e.dismiss(w, ErrNodeEnded)
		return
	}
	e.nodeEnds = slices.Delete(e.nodeEnds, 0, 1)
}

// finishStep grants the locks in wokenLocks to the next waiters, and normalizes the locks in touchedLocks. Each call
// that changes locks ends with finishStep.
func (e *engine) finishStep() {
	for i := 0; i < len(e.wokenLocks); i++ {
		e.grantQueue(e.wokenLocks[i], false) // may append to wokenLocks
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
