package locks

import (
	"cmp"
	"slices"
)

// loss is why and when a hold ends against its owner's will.
type loss struct {
	reason Reason
	at     int64
	cause  uint64
	// delays: delay is the delay afterwards, whatever the hold asked for.
	delays bool
	delay  int64
}

// lossOf says how a hold ends that is over: by what came first.
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

// sortByEnd sorts holds of a lock that are over by their last instants, and those of one instant by their fences.
func (s *store) sortByEnd(l *lock, holds []*hold) {
	slices.SortFunc(holds, func(a, b *hold) int {
		return cmp.Or(cmp.Compare(s.lossOf(l, a).at, s.lossOf(l, b).at), compareFences(a, b))
	})
}

// isOver reports whether a hold has ended by an instant, and was not removed.
func (s *store) isOver(l *lock, h *hold, now int64) bool {
	switch {
	case s.flushOf(l) != nil:
		return true
	case h.deadline == never:
		return !s.isOpen(h.bound, now)
	}
	return h.deadline < now
}

// lose ends a hold against its owner's will.
func (e *engine) lose(l *lock, h *hold, why loss) {
	e.charge(1, 0)
	told := e.aboutEnd(Lost, h, why.at)
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

// loseOver ends the owner's hold if its time is over. It reports whether that was so.
func (e *engine) loseOver(l *lock, owner string) bool {
	h := l.holdOf(owner)
	if h == nil || !e.isOver(l, h, e.now) {
		return false
	}
	e.lose(l, h, e.lossOf(l, h))
	return true
}

// Break ends holds by force, and returns how many.
func (t *Table) Break(b *Break) (broken int) {
	defer t.finish()
	l := t.settled(b.DB, b.Key)
	if l.holders() == 0 && l.waiters() == 0 && !l.delayed() {
		return 0
	}
	why := loss{reason: b.Reason, at: t.now, delays: b.ByDelay, delay: b.DelayMillis, cause: b.Cause}
	if !b.ByOwner && b.Fence == 0 && b.ByDelay {
		t.setDelay(l, b.DelayMillis)
	}
	for _, h := range slices.Clone(l.holds()) {
		if (!b.ByOwner || h.owner == b.Owner) && (b.Fence == 0 || h.fence == b.Fence) {
			t.lose(l, h, why)
			broken++
		}
	}
	return broken
}

// setDelay gives a lock a delay from now on, or ends the delay that runs.
func (e *engine) setDelay(l *lock, millis int64) {
	if l.more == nil && millis <= 0 {
		return
	}
	m := e.extend(l)
	if m.delay = 0; millis > 0 {
		m.delay = max(saturated(e.now, millis), 1)
	}
	e.wake(l)
}

// Flush ends all holds of a database: another database takes its place. What it held is told by Sweep, or when a call
// names the key, and its queues move on then. The owner of the table forgets all markers of the database: see Came. The
// events have the cause.
func (t *Table) Flush(db int, cause uint64) {
	if !t.Any(db) {
		return
	}
	flushed := t.live[db]
	flushed.flush = &flush{at: t.now, cause: cause}
	t.live[db] = newDatabase(t.compared)
	t.flushed = append(slices.Clip(t.flushed), flushed)
	for t.hasSteps() && flushed.locks.Len() > 0 {
		l := flushed.firstContended()
		if l == nil {
			l, _ = flushed.locks.Min()
		}
		l = t.own(l)
		t.moveFlushed(l)
		t.settle(l, t.now)
		t.finish()
	}
}

// moveFlushed ends the holds of a lock that was flushed, without a delay. Its queue, if it has one, goes to the live
// database.
func (e *engine) moveFlushed(l *lock) {
	from := e.home(l)
	e.readAfter(from.flush.at - 1)
	e.charge(0, 1)
	holds := slices.Clone(l.holds())
	e.sortByEnd(l, holds)
	for _, h := range holds {
		e.lose(l, h, e.lossOf(l, h))
	}
	from.remove(l)
	l.head &^= flagPresent
	e.makeDatabase(l.db()).set(l)
	if m := l.more; m != nil {
		if m.delay = 0; l.waiters() > 0 {
			m.grantAt = max(from.flush.at, 1)
		}
	}
	l.head &^= flagWake // the grant is pending
}

// Any reports whether any lock is there in a database.
func (s *databases) Any(db int) bool {
	d := s.database(db)
	return d != nil && d.locks.Len() > 0
}
