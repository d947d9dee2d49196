package locks

import (
	"cmp"
	"slices"
)

// lose ends a hold against its owner's will.
func (t *Table) lose(l *lock, h *hold, why loss) {
	e := t.aboutEnd(Lost, h, why.at)
	e.Reason, e.Cause, e.SinceMillis = why.reason, why.cause, h.since
	if h.extra != nil {
		e.Note = h.extra.note
	}
	t.emit(e)
	t.late(h, why.at)
	t.removeHold(l, h)
	delay := h.delay()
	if why.delays {
		delay = why.delay
	}
	if delay > 0 {
		m := t.extensionOf(l)
		m.delay = max(m.delay, saturated(why.at, delay), 1)
	}
}

// over reports whether a hold has ended by an instant, and is not worked off.
func (t *Table) over(l *lock, h *hold, now int64) bool {
	if f := t.pendingFlush(l); f != nil || l.more != nil && h.fence < l.more.lost.below {
		return true
	}
	if h.deadline == never {
		return !t.openAt(h.bound, now)
	}
	return h.deadline < now
}

// Break ends holds by force, and returns how many.
func (t *Table) Break(b *Break) (broken int) {
	defer t.finish()
	l := t.settled(b.DB, b.Key)
	whole := !b.ByOwner && b.Fence == 0
	if l != nil && whole && b.ByDelay {
		if there, _ := t.there(l, t.now); !there {
			return 0
		}
		t.setDelay(l, b.DelayMillis)
	}
	if l == nil || l.holders() == 0 {
		return 0
	}
	why := loss{below: t.fences + 1, reason: b.Reason, at: t.now, delays: b.ByDelay, delay: b.DelayMillis, cause: b.Cause}
	if whole {
		broken = l.holders() - t.overOf(l)
		why.delay = 0
		if broken == 0 && !b.ByDelay {
			return 0
		}
		t.mark(l, why)
		if l.hold != nil { // whatever the steps: see holdsOf
			t.pay()
			t.lose(l, l.hold, t.lossOf(l, l.hold))
		}
		t.workLost(l)
		return broken
	}
	h := t.holdBy(l, b.Fence)
	if b.ByOwner {
		h = t.holdOf(l, b.Owner)
	}
	if h == nil || b.Fence != 0 && h.fence != b.Fence || t.over(l, h, t.now) {
		return 0
	}
	t.lose(l, h, why)
	return 1
}

// setDelay gives a lock a delay from now on, or ends the delay that runs.
func (t *Table) setDelay(l *lock, millis int64) {
	if l.more == nil && millis <= 0 {
		return
	}
	m := t.extensionOf(l)
	if m.delay = 0; millis > 0 {
		m.delay = max(saturated(t.now, millis), 1)
	}
	t.wake(l)
}

// workLost works off what was lost with others of the lock, while there are steps.
func (t *Table) workLost(l *lock) {
	for h := t.lostOf(l); h != nil && t.steps > 0; h = t.lostOf(l) {
		t.pay()
		t.lose(l, h, t.lossOf(l, h))
	}
}

// Flush ends all holds of a database. They count as lost at once, and are worked off by Sweep. The owner
// of the table forgets all markers of the database: see Came. The effects have the cause.
func (t *Table) Flush(db int, cause uint64) {
	if !t.Any(db) {
		return
	}
	t.fences++ // so that each fence is either before or behind
	f := flush{db: db, mark: t.fences, at: t.now, cause: cause}
	i, known := slices.BinarySearchFunc(t.flushes, db, func(f flush, db int) int { return cmp.Compare(f.db, db) })
	if known {
		t.flushes[i] = f
	} else {
		t.flushes = slices.Insert(t.flushes, i, f)
	}
	for t.steps > 0 && len(t.flushes) > 0 {
		t.workFlush()
		t.finish()
	}
	t.finish()
}

// workFlush takes a step of the first flush: a hold of the first lock that is left, or the lock.
func (t *Table) workFlush() {
	f := &t.flushes[0]
	at := probeAt(f.db, f.hash, f.key)
	l, ok := seek(t.locks, &at)
	if !ok || l.db() != f.db {
		t.steps--
		t.flushes = slices.Delete(t.flushes, 0, 1)
		return
	}
	if t.pendingFlush(l) == nil && t.lostOf(l) == nil {
		t.steps-- // a look
		f.hash, f.key = l.hash, l.key()+"\x00"
		return
	}
	t.pay()
	l = t.own(l)
	if h := t.lostOf(l); h != nil {
		t.lose(l, h, t.lossOf(l, h))
		return
	}
	f.hash, f.key = l.hash, l.key()+"\x00" // the next key that there can be
}

// Any reports whether any lock is there in a database.
func (t *Table) Any(db int) bool {
	start := probeAt(db, 0, "")
	l, ok := seek(t.locks, &start)
	return ok && l.db() == db
}

// hollow reports whether nothing of a lock is there but holds that were lost together and bring no delay: the key is
// no lock any more.
func (t *Table) hollow(l *lock) bool {
	m := l.more
	return m != nil && m.delay == 0 && m.ranks == [rankCount]int{} && (m.delays == 0 || m.lost.delays) &&
		t.allLost(l)
}

// overHolds is how many holds of a lock are over at an instant, with their permits, and the last instant of the delay
// that they bring; 0: none. looked is how many holds it looked at.
func (t *Table) overHolds(l *lock, now int64) (over int, permits, delay int64, looked int) {
	m := l.more
	whole := t.allLost(l)
	switch {
	case l.holders() == 0:
		return 0, 0, 0, 0
	case whole && m == nil:
		return 1, l.hold.permits(), 0, 1
	case whole && (m.delays == 0 || m.lost.delays || t.pendingFlush(l) != nil):
		return m.holders, m.permits, 0, 1
	case !whole && l.hold == nil && t.firstEnd(l) >= now && (m.sessionHolds == 0 || !t.sessionsBehind(now)):
		return 0, 0, 0, 1
	}
	t.eachHold(l, func(h *hold) bool {
		looked++
		if whole || t.over(l, h, now) {
			over++
			permits += h.permits()
			if why := t.lossOf(l, h); h.delay() > 0 && !why.delays {
				delay = max(delay, saturated(why.at, h.delay()))
			}
		}
		return true
	})
	return over, permits, delay, looked
}

// goneMember is the hold that ended first, of the first holds of a lock with several, by its session; nil: none.
func (t *Table) goneMember(l *lock) (first *hold) {
	if l.more == nil || l.hold != nil || l.more.sessionHolds == 0 || !t.sessionsBehind(t.now) {
		return nil
	}
	looks := memberLooks
	t.eachHold(l, func(h *hold) bool {
		if h.deadline == never && !t.open(h.bound) && (first == nil || t.lossOf(l, h).at < t.lossOf(l, first).at) {
			first = h
		}
		looks--
		return looks > 0
	})
	return first
}

// allLost reports whether all holds of a lock were lost together, and are not worked off.
func (t *Table) allLost(l *lock) bool {
	return t.pendingFlush(l) != nil || t.lostOf(l) != nil && t.lastFence(l) < l.more.lost.below
}
