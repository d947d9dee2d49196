package locks

import (
	"cmp"
	"slices"
)

// flush is a database whose holds with lower fences are lost, and not all worked off.
type flush struct {
	db   int
	mark uint64
	at   int64
	// hash and key are where to go on.
	hash  uint64
	key   string
	cause uint64
}

// lose ends a hold against its owner's will.
func (t *Table) lose(l *lock, h *hold, why loss) {
	e := t.aboutEnd(Lost, h, why.at)
	e.Reason, e.Cause, e.SinceMillis = why.reason, why.cause, h.since
	if h.extra != nil {
		e.Note = h.extra.note
	}
	t.tell(e)
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

// lostOf is a hold that was lost with others of its lock, and is not worked off; nil if there is none.
func (t *Table) lostOf(l *lock) *hold {
	if l.more == nil || l.more.lost.below == 0 || l.holders() == 0 {
		return nil
	}
	h := t.firstHold(l)
	if h.fence >= l.more.lost.below {
		return nil
	}
	if t.sliced { // a lease may have ended before
		if first, end := t.firstHoldEnd(l); first != nil && end < l.more.lost.at {
			return first
		}
	}
	return h
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
	if l != nil && whole && b.ByDelay && t.sliced {
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
		if broken = l.holders(); t.sliced {
			broken -= t.overOf(l)
			why.delay = 0
		}
		if broken == 0 && !b.ByDelay {
			return 0
		}
		t.mark(l, why)
		if t.sliced && l.hold != nil { // whatever the steps: see holdsOf
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

// mark ends all holds of a lock together. What has ended them before counts.
func (t *Table) mark(l *lock, why loss) {
	before := t.lostOf(l)
	m := t.extensionOf(l)
	if t.sliced && before != nil {
		why.reason, why.at, why.cause = m.lost.reason, m.lost.at, m.lost.cause
		why.delays = why.delays || m.lost.delays
	}
	m.lost = why
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

// pendingFlush is the flush that a lock has still to go through.
func (t *Table) pendingFlush(l *lock) *flush {
	for i := range t.flushes {
		if f := &t.flushes[i]; f.db == l.db() && t.bornOf(l) < f.mark {
			return f
		}
	}
	return nil
}

// bornOf is a fence: flushes before it are over for the lock.
func (t *Table) bornOf(l *lock) uint64 {
	if l.more != nil {
		return l.more.createdFence
	}
	if l.hold != nil {
		return l.hold.fence
	}
	return t.fences // it is being made
}

// flushed is called with each lock that is to be changed: the lock goes through the flush that waits for it.
func (t *Table) flushed(l *lock) {
	f := t.pendingFlush(l)
	if f == nil {
		return
	}
	m := t.extensionOf(l)
	m.createdFence = f.mark
	if t.sliced {
		m.delay = 0
	}
	t.mark(l, loss{below: f.mark, reason: Flushed, at: f.at, delays: t.sliced, cause: f.cause})
	l.head &^= flagPresent
	t.wake(l)
}

// workFlush takes a step of the first flush: a hold of the first lock that is left, or the lock.
func (t *Table) workFlush() {
	f := &t.flushes[0]
	l, ok := seek(t.locks, &lock{key: f.key, hash: f.hash, head: uint64(f.db) << 8})
	if !ok || l.db() != f.db {
		t.steps--
		t.flushes = slices.Delete(t.flushes, 0, 1)
		return
	}
	if t.sliced && t.pendingFlush(l) == nil && t.lostOf(l) == nil {
		t.steps-- // a look
		f.hash, f.key = l.hash, l.key+"\x00"
		return
	}
	t.pay()
	l = t.own(l)
	if h := t.lostOf(l); h != nil {
		t.lose(l, h, t.lossOf(l, h))
		return
	}
	f.hash, f.key = l.hash, l.key+"\x00" // the next key that there can be
}

// Any reports whether any lock is there in a database.
func (t *Table) Any(db int) bool {
	l, ok := seek(t.locks, &lock{head: uint64(db) << 8})
	return ok && l.db() == db
}
