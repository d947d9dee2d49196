package locks

import (
	"cmp"
	"slices"
)

// loss describes the end of a hold against the will of its owner.
type loss struct {
	reason  Reason
	at      int64  // the last instant of the hold
	causeID uint64 // the id of the command that ended the hold, or 0: see [Event]
	// A loss starts a delay of the lock. If overridesDelay is false, the request for the hold set the duration of the
	// delay. If overridesDelay is true, the field delay is the duration, in milliseconds. A duration of 0 means no delay.
	overridesDelay bool
	delay          int64
}

// lossOf returns the loss of a hold that has ended. A hold of a flushed lock ended at the flush, unless its lease or
// its session ended before the flush. In both cases the loss starts no delay.
func (s *store) lossOf(l *lock, h *hold) loss {
	why := loss{reason: Expired, at: h.deadline}
	if h.deadline == noDeadline {
		why = loss{reason: SessionGone, at: s.endOf(s.session(h.sessionOrLease))}
	}
	if f := s.flushOf(l); f != nil {
		if why.at >= f.at {
			why = loss{reason: Flushed, at: f.at, causeID: f.causeID}
		}
		why.overridesDelay = true
	}
	return why
}

// sortByEnd sorts ended holds of a lock by their last instants. It sorts holds with the same last instant by fence.
func (s *store) sortByEnd(l *lock, holds []*hold) {
	slices.SortFunc(holds, func(a, b *hold) int {
		return cmp.Or(cmp.Compare(s.lossOf(l, a).at, s.lossOf(l, b).at), compareFences(a, b))
	})
}

// hasEnded reports whether a stored hold of the lock has ended. A hold has ended if the lock is flushed, if the hold's
// session is not open at nowMillis, or if the deadline of the hold's lease is before nowMillis.
func (s *store) hasEnded(l *lock, h *hold, nowMillis int64) bool {
	switch {
	case s.flushOf(l) != nil:
		return true
	case h.deadline == noDeadline:
		return !s.isSessionOpen(h.sessionOrLease, nowMillis)
	}
	return h.deadline < nowMillis
}

// loseHold removes a hold, emits [Lost], and starts the delay of the lock. If the lock already has a delay that ends
// later, that delay stays.
func (e *engine) loseHold(l *lock, h *hold, why loss) {
	e.charge(1, 0)
	event := e.emitTimedHold(Lost, l.key(), h, why.at)
	event.Reason, event.CauseID, event.SinceMillis = why.reason, why.causeID, h.since
	e.emitLate(l.key(), h, why.at)
	e.removeHold(l, h)
	delay := h.delay
	if why.overridesDelay {
		delay = why.delay
	}
	if delay > 0 {
		m := e.extend(l)
		m.delayEnd = max(m.delayEnd, addSaturating(why.at, delay), 1)
	}
}

// loseEndedHold removes the owner's hold if the hold has ended, and reports whether it removed the hold.
func (e *engine) loseEndedHold(l *lock, owner string) bool {
	h := l.holdOf(owner)
	if h == nil || !e.hasEnded(l, h, e.now) {
		return false
	}
	e.loseHold(e.mutable(l), h, e.lossOf(l, h))
	return true
}

// Break removes the holds that b selects, and returns their number.
//
// If b selects all holds and OverridesDelay is true, DelayMillis also replaces the present delay of the lock, even if
// the lock has no hold. Break changes nothing if the lock has neither a hold nor a waiter nor a delay.
func (t *Table) Break(b *Break) (broken int) {
	defer t.finishStep()
	l := t.settleKey(b.DB, b.Key)
	if l.holders() == 0 && l.waiters() == 0 && !l.delayed() {
		return 0
	}
	why := loss{reason: b.Reason, at: t.now, overridesDelay: b.OverridesDelay, delay: b.DelayMillis, causeID: b.CauseID}
	if !b.ByOwner && b.Fence == 0 && b.OverridesDelay {
		t.setDelay(l, b.DelayMillis)
	}
	for _, h := range slices.Clone(l.holds()) {
		if (!b.ByOwner || h.owner == b.Owner) && (b.Fence == 0 || h.fence == b.Fence) {
			t.loseHold(l, h, why)
			broken++
		}
	}
	return broken
}

// setDelay replaces the delay of the lock by a delay that starts now. If millis is 0, setDelay only ends the present
// delay.
func (e *engine) setDelay(l *lock, millis int64) {
	if l.ext == nil && millis <= 0 {
		return
	}
	m := e.extend(l)
	if m.delayEnd = 0; millis > 0 {
		m.delayEnd = max(addSaturating(e.now, millis), 1)
	}
	e.wakeQueue(l)
}

// Flush ends all holds of a database in constant time: it replaces the database by an empty one. Flush then emits the
// losses and moves the queues to the new database, while the budget lasts. [Table.Sweep] and calls that name a key do
// the rest. The argument causeID becomes the CauseID of the Lost events of the holds that the flush ended.
//
// The caller must delete the items that mark the locks; see [Removed].
func (t *Table) Flush(db int, causeID uint64) {
	if !t.HasLocks(db) {
		return
	}
	flushed := t.liveDatabases[db]
	flushed.flush = &flush{at: t.now, causeID: causeID}
	t.liveDatabases[db] = newDatabase()
	t.flushedDatabases = append(slices.Clip(t.flushedDatabases), flushed)
	for t.hasBudget() && flushed.locks.Len() > 0 {
		l := flushed.firstContended()
		if l == nil {
			l, _ = flushed.locks.Min()
		}
		l = t.mutable(l)
		t.moveFlushed(l)
		t.settle(l, t.now)
		t.finishStep()
	}
}

// moveFlushed removes all holds and the delay of a flushed lock, and moves the lock with its queue to the live
// database. If the lock has waiters, a grant becomes pending. The losses of the holds start no delay.
func (e *engine) moveFlushed(l *lock) {
	from := e.databaseOf(l)
	e.setReadAfter(from.flush.at - 1)
	e.charge(0, 1)
	holds := slices.Clone(l.holds())
	e.sortByEnd(l, holds)
	for _, h := range holds {
		e.loseHold(l, h, e.lossOf(l, h))
	}
	from.remove(l)
	l.idAndFlags &^= flagPresent
	e.makeDatabase(l.db()).set(l)
	if m := l.ext; m != nil {
		if m.delayEnd = 0; l.waiters() > 0 {
			m.grantPendingSince = max(from.flush.at, 1)
		}
	}
	l.idAndFlags &^= flagWoken // finishStep must not grant the lock: the event of the pending grant will
}

// HasLocks reports whether the live database with the number db has locks.
func (s *databases) HasLocks(db int) bool {
	d := s.database(db)
	return d != nil && d.locks.Len() > 0
}
