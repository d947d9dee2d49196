package locks

import (
	"cmp"
	"slices"
)

// loss describes the end of a hold against its owner's will.
type loss struct {
	reason Reason
	at     int64
	cause  uint64
	// delays: delay replaces the delay that the hold asked for.
	delays bool
	delay  int64
}

// lossOf returns the loss of a hold that has ended: the earliest of its lease or session, and the flush.
func (s *store) lossOf(l *lock, h *hold) loss {
	why := loss{reason: Expired, at: h.deadline}
	if h.deadline == never {
		why = loss{reason: SessionGone, at: s.endOf(s.session(h.bound))}
	}
	if f := s.flushOf(l); f != nil {
		if why.at >= f.at {
			why = loss{reason: Flushed, at: f.at, cause: f.cause}
		}
		why.delays = true
	}
	return why
}

// sortByEnd sorts ended holds of a lock by their last instants, and then by their fences.
func (s *store) sortByEnd(l *lock, holds []*hold) {
	slices.SortFunc(holds, func(a, b *hold) int {
		return cmp.Or(cmp.Compare(s.lossOf(l, a).at, s.lossOf(l, b).at), compareFences(a, b))
	})
}

// hasEnded reports whether a hold that is in the table has ended before an instant.
func (s *store) hasEnded(l *lock, h *hold, now int64) bool {
	switch {
	case s.flushOf(l) != nil:
		return true
	case h.deadline == never:
		return !s.isOpen(h.bound, now)
	}
	return h.deadline < now
}

// loseHold removes a hold against its owner's will, and starts the delay.
func (e *engine) loseHold(l *lock, h *hold, why loss) {
	e.charge(1, 0)
	told := e.holdEndEvent(Lost, h, why.at)
	told.Reason, told.Cause, told.SinceMillis = why.reason, why.cause, h.since
	if h.extra != nil {
		told.Note = h.extra.note
	}
	e.emit(told)
	e.emitLate(h, why.at)
	e.removeHold(l, h)
	delay := h.delay()
	if why.delays {
		delay = why.delay
	}
	if delay > 0 {
		m := e.extend(l)
		m.delay = max(m.delay, saturated(why.at, delay), 1)
	}
}

// loseEnded removes the owner's hold if it has ended, and reports whether it did.
func (e *engine) loseEnded(l *lock, owner string) bool {
	h := l.holdOf(owner)
	if h == nil || !e.hasEnded(l, h, e.now) {
		return false
	}
	e.loseHold(e.mutable(l), h, e.lossOf(l, h))
	return true
}

// Break ends holds of a lock by force, and returns how many.
func (t *Table) Break(b *Break) (broken int) {
	defer t.finish()
	l := t.settleKey(b.DB, b.Key)
	if l.holders() == 0 && l.waiters() == 0 && !l.delayed() {
		return 0
	}
	why := loss{reason: b.Reason, at: t.now, delays: b.ByDelay, delay: b.DelayMillis, cause: b.Cause}
	if !b.ByOwner && b.Fence == 0 && b.ByDelay {
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

// setDelay sets the delay of a lock from now on; 0 ends it.
func (e *engine) setDelay(l *lock, millis int64) {
	if l.ext == nil && millis <= 0 {
		return
	}
	m := e.extend(l)
	if m.delay = 0; millis > 0 {
		m.delay = max(saturated(e.now, millis), 1)
	}
	e.wake(l)
}

// Flush ends all holds of a database, in constant time: an empty database replaces it. Flush emits losses, with the
// cause, and moves queues while the budget lasts; Sweep, or a call that names a key, does the rest. The caller must
// remove the items of the database that mark locks: see Created.
func (t *Table) Flush(db int, cause uint64) {
	if !t.HasLocks(db) {
		return
	}
	flushed := t.live[db]
	flushed.flush = &flush{at: t.now, cause: cause}
	t.live[db] = newDatabase(t.compared)
	t.flushed = append(slices.Clip(t.flushed), flushed)
	for t.hasBudget() && flushed.locks.Len() > 0 {
		l := flushed.firstContended()
		if l == nil {
			l, _ = flushed.locks.Min()
		}
		l = t.mutable(l)
		t.moveFlushed(l)
		t.settle(l, t.now)
		t.finish()
	}
}

// moveFlushed removes the holds of a flushed lock, without a delay, and moves the lock to the live database.
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
	l.head &^= flagPresent
	e.makeDatabase(l.db()).set(l)
	if m := l.ext; m != nil {
		if m.delay = 0; l.waiters() > 0 {
			m.grantAt = max(from.flush.at, 1)
		}
	}
	l.head &^= flagWake // grantAt has the grant
}

// HasLocks reports whether a database has live locks.
func (s *databases) HasLocks(db int) bool {
	d := s.database(db)
	return d != nil && d.locks.Len() > 0
}
