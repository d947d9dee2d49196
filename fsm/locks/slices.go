package locks

// What ends for many at once is worked off in slices. What has ended and is not worked off looks ended in every
// answer.

// memberLooks is how many holds of a lock a step looks at for those whose sessions are over.
const memberLooks = 16

// Sweep runs what is due or unfinished, in the order of time, within the step budget. Behind the first half of the steps
// locks with waiters have their turn: what somebody waits for does not wait for all that ended before.
func (t *Table) Sweep() {
	half := max(0, t.steps) / 2
	t.steps -= half
	t.sweep()
	t.steps += half
	if t.Behind() {
		t.sweepQueued(max(0, t.steps-half/2))
		t.sweep()
	}
	if !t.Behind() {
		t.queuedAt = spot{}
	}
}

// sweepQueued does what is due at locks with waiters, one after another, while there are more steps than floor. Locks
// for which a request for many waits go with the order of time: what is due there depends on other locks.
func (t *Table) sweepQueued(floor int) {
	for n := t.queued.Len(); n > 0 && t.steps > floor; n-- {
		at := &t.queuedAt
		from := probeAt(at.db, at.hash, at.key)
		l, ok := seek(t.queued, &from)
		if !ok {
			t.queuedAt = spot{}
			continue
		}
		t.steps--
		t.queuedAt = spot{l.db(), l.hash, l.key() + "\x00"} // the next key that there can be
		if l.more.many > 0 || !t.undone(l) || t.goneInLine(l) {
			continue
		}
		t.workOffOwn(t.own(l), floor)
		t.finish()
	}
}

// goneInLine reports whether the session is over of one of the first in line: it leaves in the order of time.
func (t *Table) goneInLine(l *lock) (gone bool) {
	if l.more.sessionWaits == 0 || !t.sessionsBehind(t.now) {
		return false
	}
	looks := memberLooks
	t.eachWaiter(l, func(w *waiter) bool {
		looks--
		gone = w.session != 0 && !t.open(w.session)
		return !gone && looks > 0
	})
	return gone
}

// Behind reports whether anything is due and not worked off.
func (t *Table) Behind() bool { return t.BehindAt(t.now) }

// BehindAt is Behind at an instant.
func (t *Table) BehindAt(now int64) bool { return t.firstDue() < now }

// sessionsBehind reports whether a session is over at an instant and holds or waits still.
func (t *Table) sessionsBehind(now int64) bool { return t.ended.Len() > 0 || t.sessionEndsBy(now) }

// overOf is how many holds of a lock are over now.
func (t *Table) overOf(l *lock) int {
	over, _, _, _ := t.overHolds(l, t.now)
	return over
}

// delayOf is the last instant of a lock's delay; 0: no delay runs. Holds that are over bring a delay until pending.
func (t *Table) delayOf(l *lock, pending, now int64) int64 {
	if l.more != nil && t.pendingFlush(l) == nil {
		pending = max(pending, l.more.delay)
	}
	if pending < now {
		return 0
	}
	return pending
}

// count counts what is there of a lock at an instant. looked is how many holds and waiters that took.
func (t *Table) count(l *lock, shown *Info, now int64) (looked int) {
	over, permits, pending, looked := t.overHolds(l, now)
	if shown.Holders -= over; shown.Holders == 0 {
		shown.Mode = 0
	}
	shown.Permits -= permits
	shown.DelayLeftMillis = 0
	if end := t.delayOf(l, pending, now); end != 0 {
		shown.DelayLeftMillis = end - now
	}
	if l.waiters() == 0 || !t.BehindAt(now) {
		return looked
	}
	t.eachWaiter(l, func(w *waiter) bool {
		if looked++; !t.shows(w, now) {
			shown.Waiters--
		}
		return true
	})
	return looked
}

// delayPending reports whether a hold has ended with its session, and brings a delay when it is worked off.
func (t *Table) delayPending(l *lock) bool {
	switch m := l.more; {
	case l.hold != nil:
		return l.hold.delay() > 0 && t.holderOver(l) && saturated(t.lossOf(l, l.hold).at, l.hold.delay()) >= t.as
	case m == nil || m.delays == 0 || m.sessionHolds == 0 || !t.sessionsBehind(t.as):
		return false
	}
	_, _, delay, _ := t.overHolds(l, t.as)
	return delay >= t.as
}

// There reports whether a lock is there at an instant: an owner holds it or waits for it, or its delay runs. looked is
// how many holds and waiters that took.
func (t *Table) There(db int, key string, now int64) (there bool, looked int) {
	if l := t.peek(db, key); l != nil {
		return t.there(l, now)
	}
	return false, 0
}

// Vacate gives the key of a lock that is not there to another value, though what the lock held is not worked off. It
// reports whether that could be.
func (t *Table) Vacate(db int, key string) bool {
	defer t.finish()
	l := t.take(db, key)
	if l == nil {
		return true
	}
	if l.waiters() > 0 {
		return false
	}
	if !t.hollow(l) { // each hold is told as what ended it, as all have ended before
		t.mark(l, loss{below: t.fences + 1, reason: SessionGone, at: t.now + 1, delays: true})
		l.more.delay = 0
	}
	return true
}

func (t *Table) there(l *lock, now int64) (there bool, looked int) {
	over, _, delay, looked := t.overHolds(l, now)
	if over < l.holders() || t.delayOf(l, delay, now) != 0 {
		return true, looked
	}
	t.eachWaiter(l, func(w *waiter) bool {
		looked++
		there = t.shows(w, now)
		return !there
	})
	return there, looked
}

// losing reports whether a lock has holds that were lost together, and are not worked off.
func (t *Table) losing() bool {
	l, _ := t.timers.Min()
	return l != nil && l.due == past
}

// holdsOf is how many holds a session has that are not over: all but those that were lost together with others.
func (t *Table) holdsOf(s *session) int {
	lost := t.losing()
	if len(t.flushes) == 0 && !lost {
		return s.holds
	}
	n := 0
	t.bySession.Ascend(&hold{bound: s.id}, func(h *hold) bool {
		if h.bound != s.id {
			return false
		}
		// Of an exclusive hold nothing is left for later.
		if !t.flushedHold(h) && !(lost && h.mode != Exclusive && t.lostHold(h)) {
			n++
		}
		return true
	})
	return n
}

// flushedHold reports whether a flush that is not worked off has ended a hold.
func (t *Table) flushedHold(h *hold) bool {
	for i := range t.flushes {
		if f := &t.flushes[i]; f.db == int(h.db) && h.fence < f.mark {
			return true
		}
	}
	return false
}

// lostHold reports whether a hold was lost with others of its lock, and is not worked off.
func (t *Table) lostHold(h *hold) bool {
	l := t.peek(int(h.db), h.key)
	return l.more != nil && h.fence < l.more.lost.below
}

// waitersOf is how many requests of a session stand in line.
func (t *Table) waitersOf(s *session, now int64) int {
	if len(t.drops) == 0 {
		return s.waiters
	}
	n := 0
	t.waitsBySession.Ascend(&waiter{session: s.id}, func(w *waiter) bool {
		if w.session == s.id && !t.dropped(w) {
			n++
		}
		return w.session == s.id
	})
	return n
}

// SessionWork is how many holds and waiters Session and Sessions look at for a session, at most.
func (t *Table) SessionWork(id uint64) int {
	if s := t.session(id); s != nil && t.Behind() {
		return s.holds + s.waiters
	}
	return 0
}

// Ended is how many locks of a database are in their places, and not there at an instant: see There. It gives up
// behind most looks.
func (t *Table) Ended(db int, now int64, most int) (n, looked int) {
	c := ender{t: t, db: db, now: now, most: most, lost: t.losing()}
	if !t.BehindAt(now) {
		return 0, 0
	}
	from := probeAt(db, 0, "")
	t.queued.Ascend(&from, func(l *lock) bool {
		if l.db() != db {
			return false
		}
		if l.hold != nil && c.soleOver(l.hold) { // session counts it
			c.n--
		}
		return c.count(l)
	})
	t.timers.Scan(func(l *lock) bool {
		if l.due >= now || !c.look() {
			return false
		}
		if l.db() == db && l.head&flagQueued == 0 && !(l.hold != nil && c.soleOver(l.hold)) {
			return c.count(l)
		}
		return true
	})
	t.ended.Scan(func(id uint64) bool { return c.session(id) })
	t.sessionEnds.Scan(func(e ending) bool {
		if e.deadline < now && t.endOf(t.session(e.id)) < now {
			c.session(e.id)
		}
		return e.deadline < now && c.look()
	})
	for i := range t.incarnations {
		t.attached.Ascend(bound{origin: &t.incarnations[i].origin}, func(b bound) bool {
			over := *b.origin == t.incarnations[i].origin && saturated(t.incarnations[i].alive, b.by) < now
			return over && c.session(b.id)
		})
	}
	return c.n, c.looked
}

// ender counts locks that have ended.
type ender struct {
	t               *Table
	db              int
	now             int64
	n, looked, most int
	lost            bool // see losing
}

func (c *ender) look() bool {
	c.looked++
	return c.looked <= c.most
}

// count counts a lock in its place.
func (c *ender) count(l *lock) bool {
	if l.head&flagPresent == 0 || c.t.pendingFlush(l) != nil {
		return c.look()
	}
	there, looked := c.t.there(l, c.now)
	if c.looked += looked; !there {
		c.n++
	}
	return c.look()
}

// soleOver reports whether a hold is alone, brings no delay, and has ended by its session: the lock is not there unless
// a request waits.
func (c *ender) soleOver(h *hold) bool {
	return h.mode == Exclusive && h.deadline == never && int(h.db) == c.db && !c.t.flushedHold(h) &&
		!c.t.openAt(h.bound, c.now) && !c.delays(h)
}

// delays reports whether the delay of a hold of a session that is over still runs.
func (c *ender) delays(h *hold) bool {
	return h.delay() > 0 && saturated(c.t.endOf(c.t.session(h.bound)), h.delay()) >= c.now
}

// session counts the locks that a session which is over has held, unless they were counted.
func (c *ender) session(id uint64) bool {
	c.t.bySession.Ascend(&hold{bound: id}, func(h *hold) bool {
		if h.bound != id || !c.look() {
			return false
		}
		switch {
		case int(h.db) != c.db, c.t.flushedHold(h):
		case h.mode == Exclusive:
			if !c.delays(h) && !(c.lost && c.t.lostHold(h)) { // of a key that was vacated the lock is no more
				c.n++
			}
		default:
			c.looked += memberLooks // a lock is looked for
			if l := c.t.peek(c.db, h.key); l.head&flagQueued == 0 && l.due >= c.now && c.t.firstHold(l) == h {
				return c.count(l)
			}
		}
		return true
	})
	return c.looked <= c.most
}
