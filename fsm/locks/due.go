package locks

import "slices"

// sweep runs what is due, in the order of time alone.
func (t *Table) sweep() {
	for t.steps > 0 && t.sweepOne() {
		t.finish()
	}
	t.finish()
}

// sweepOne takes the next step of a sweep, and reports whether there was any.
func (t *Table) sweepOne() bool {
	switch {
	case len(t.drops) > 0:
		t.workDropped()
		return true
	case t.ended.Len() > 0:
		id, _ := t.ended.Min()
		t.workSession(t.session(id))
		return true
	case len(t.flushes) > 0:
		t.workFlush()
		return true
	}
	l, isLock := t.timers.Min()
	id, end := t.nextSession()
	switch {
	case end < t.now && !(isLock && l.due < end):
		t.pay()
		t.endDue(id, end)
	case isLock && l.due < t.now:
		t.step(t.own(l))
	default:
		return false
	}
	return true
}

// nextSession is the session whose time is over first, of those for which a tree knows.
func (t *Table) nextSession() (id uint64, end int64) {
	end = never
	if e, ok := t.sessionEnds.Min(); ok {
		id, end = e.id, e.deadline
	}
	for i := range t.incarnations {
		b, _ := seek(t.attached, bound{origin: &t.incarnations[i].origin})
		if b.origin == nil || *b.origin != t.incarnations[i].origin {
			continue // all of them have leases of their own at the moment
		}
		if at := saturated(t.incarnations[i].alive, b.by); at < end {
			id, end = b.id, at
		}
	}
	return id, end
}

// endDue ends a session whose time is over; or, if its node was heard of since its own lease began, lets the
// session live with the node again.
func (t *Table) endDue(id uint64, end int64) {
	s := t.ownSession(id)
	if last := t.endOf(s); s.leased && last > end {
		t.sessionEnds.Delete(ending{s.deadline, s.id})
		s.leased = false
		t.attached.Set(bound{s.origin, s.lease, s.id})
		return
	}
	t.endSession(id, end)
}

// Settle does what is due at a key. Every method that takes a key settles it first.
func (t *Table) Settle(db int, key string) {
	t.settled(db, key)
	t.finish()
}

// settled is take, and does what is due at the key, while there are steps. Nil: nothing is there any more.
func (t *Table) settled(db int, key string) *lock {
	l := t.find(db, key)
	if l == nil || !t.undone(l) {
		if l != nil {
			l = t.own(l)
		}
		return l
	}
	l = t.own(l)
	t.workOffOwn(l, 0)
	return l
}

// workOffOwn does what is due at a lock while there are more steps than floor.
func (t *Table) workOffOwn(l *lock, floor int) {
	for t.steps > floor && t.undone(l) {
		t.step(l)
		t.pump(l)
	}
	t.as = t.now
}

// undone reports whether something is to be done with a lock, as far as the lock knows.
func (t *Table) undone(l *lock) bool {
	return t.unsettled(l) || t.holderOver(l) || t.goneMember(l) != nil
}

// unsettled reports whether something is to be done with a lock.
func (t *Table) unsettled(l *lock) bool { return t.unsettledAt(l, t.now) }

func (t *Table) unsettledAt(l *lock, now int64) bool {
	return t.pendingFlush(l) != nil || t.dueOf(l) < now
}

// dueFirst reports whether something is due at a lock that comes before a grant: at one instant waits end last.
func (t *Table) dueFirst(l *lock) bool {
	return t.pendingFlush(l) != nil || t.grantsDueOf(l) < t.as || t.waitsDueOf(l) < t.as-1
}

// behind makes the call under way look at locks as of just behind an instant.
func (t *Table) behind(instant int64) { t.as = min(t.now, instant+1) }

// holderOver reports whether the only hold of a lock is one of a session whose time is over.
func (t *Table) holderOver(l *lock) bool {
	return l.hold != nil && l.hold.deadline == never && !t.open(l.hold.bound)
}

// step does the first thing that is due at a lock. Requires: something is. Then the queue is looked at: who
// came to the lock before it was settled waits for that.
func (t *Table) step(l *lock) {
	t.pay()
	t.wake(l)
	if h := t.lostOf(l); h != nil {
		t.behind(l.more.lost.at - 1)
		t.lose(l, h, t.lossOf(l, h))
		return
	}
	hold, end := t.firstHoldEnd(l)
	if h := t.goneMember(l); h != nil && t.lossOf(l, h).at <= end {
		hold, end = h, t.lossOf(l, h).at
	}
	delay, grant, wait := int64(never), int64(never), int64(never)
	var w *waiter
	if m := l.more; m != nil {
		if m.unfinished != 0 {
			grant = m.unfinished - 1
		}
		if m.delay != 0 {
			delay = m.delay
		}
		if w = t.firstWaitEnd(l); w != nil {
			wait = w.deadline
		}
	}
	// At one instant holds end first, then the delay, then a waiter is granted, then waits end: who waits
	// until the very instant is granted.
	switch {
	case end <= min(delay, grant, wait) && end < t.now:
		t.behind(end)
		t.lose(l, hold, t.lossOf(l, hold))
	case delay <= min(grant, wait) && delay < t.now:
		t.behind(delay)
		l.more.delay = 0
	case grant <= wait && grant < t.now:
		t.behind(grant)
		t.steps += StepUnits // pump pays
	case wait < t.now:
		t.behind(wait)
		t.endWait(w)
	}
}

// lossOf says how a hold ends that is over: by what came first.
func (t *Table) lossOf(l *lock, h *hold) loss {
	why := loss{reason: Expired, at: h.deadline}
	if h.deadline == never {
		why = loss{reason: SessionGone, at: t.endOf(t.session(h.bound))}
	}
	if l.more == nil || h.fence >= l.more.lost.below {
		return why
	}
	mark := l.more.lost
	if why.at < mark.at {
		// The mark has said what delay the lock has.
		mark.reason, mark.at, mark.cause = why.reason, why.at, 0
	}
	return mark
}

// endWait ends a wait by time: the place is kept for the grace, or the grace is over too.
func (t *Table) endWait(w *waiter) {
	if err := t.lapsed(w); err != nil || w.absent {
		t.dismiss(w, err)
		return
	}
	for _, key := range w.keys() {
		t.emit(Effect{
			Kind: TimedOut, DB: int(w.db), Key: t.find(int(w.db), key).key(), Owner: w.owner, Session: w.session,
			Client: w.client(), WaitedMillis: t.now - w.since,
		})
	}
	told := t.endOfWait(w, 0, nil)
	told.ByTime = true
	t.emit(told)
	if w.grace <= 0 {
		t.unline(w)
		t.emitLeft(w, OutOfTime)
	} else {
		kept := *w
		kept.absent, kept.deadline = true, saturated(w.deadline, w.grace)
		t.relined(w, &kept)
	}
	t.wakeAll(w)
}

// firstDue is the first instant behind which something is due. past: something is unfinished.
func (t *Table) firstDue() int64 {
	if len(t.drops)+len(t.flushes)+t.ended.Len() > 0 {
		return past
	}
	_, due := t.nextSession()
	if l, ok := t.timers.Min(); ok {
		due = min(due, l.due)
	}
	return due
}

// NextDue is the first instant at which something is due, a millisecond behind its deadline. It lies in
// the past while something is unfinished.
func (t *Table) NextDue() (millis int64, ok bool) {
	switch due := t.firstDue(); due {
	case never:
		return 0, false
	case past:
		return t.now, true
	default:
		return due + 1, true
	}
}

// DueBetween reports whether anything is due until a later instant that is not due now. DueAt is the same
// of a key; it may say yes without need where many hold.
func (t *Table) DueBetween(after, until int64) bool {
	return after < until && t.firstDue() < until
}

// DueAt is DueBetween of a key.
func (t *Table) DueAt(db int, key string, after, until int64) bool {
	if after >= until {
		return false
	}
	l := t.peek(db, key)
	switch {
	case l == nil:
		return false
	case l.due < until:
		return true
	case l.hold != nil && l.hold.deadline == never:
		if s := t.session(l.hold.bound); !s.over && t.endOf(s) < until {
			return true
		}
	case l.more != nil && l.more.sessionHolds > 0:
		return t.sessionEndsBy(until)
	}
	return l.more != nil && l.more.sessionWaits > 0 && t.sessionEndsBy(until)
}

// sessionEndsBy reports whether the time of any session is over by an instant.
func (t *Table) sessionEndsBy(until int64) bool {
	_, end := t.nextSession()
	return end < until
}

// lapsed says why a waiter is gone that is not removed yet. Nil: it is not gone.
func (t *Table) lapsed(w *waiter) error {
	switch {
	case t.dropped(w):
		return ErrDropped
	case w.session != 0 && !t.open(w.session):
		return ErrNoSession
	}
	return nil
}

// finish does what follows from the changes of a call: it grants, removes locks without a purpose, and
// notes when locks are due. Every call that takes locks ends with it.
func (t *Table) finish() {
	for i := 0; i < len(t.woken); i++ {
		t.pump(t.woken[i]) // may wake more
	}
	clear(t.woken)
	t.woken = t.woken[:0]
	for _, l := range t.touched {
		l.head &^= flagTouched
		t.normalize(l)
	}
	clear(t.touched)
	t.touched = t.touched[:0]
	t.as, t.near = t.now, near{}
}

// normalize puts a lock into its least form, and tells whether it is there.
func (t *Table) normalize(l *lock) {
	m := l.more
	idle := m == nil || m.delay == 0 && m.unfinished == 0 && m.ranks == [rankCount]int{}
	if idle && m != nil && m.holders <= 1 && (l.hold == nil || l.hold.fence >= m.lost.below) {
		l.more = nil
		t.bytes -= extensionBytes
	}
	gone := idle && l.holders() == 0
	due := int64(never)
	if !gone {
		due = t.dueOf(l)
	}
	if due != l.due {
		if l.due != never {
			t.timers.Delete(l)
		}
		if l.due = due; due != never {
			t.timers.Set(l)
		}
	}
	if inLine := m != nil && m.ranks != [rankCount]int{}; inLine != (l.head&flagQueued != 0) {
		if l.head ^= flagQueued; inLine {
			t.queued.Set(l)
		} else {
			t.queued.Delete(l)
		}
	}
	if gone {
		t.locks.Delete(l)
		t.bytes -= l.bytes()
	}
	present := !gone && !t.hollow(l)
	if present == (l.head&flagPresent != 0) {
		return
	}
	kind := Went
	if l.head ^= flagPresent; present {
		kind = Came
	}
	t.emit(Effect{Kind: kind, DB: l.db(), Key: l.key(), Text: l.text})
}

// dueOf is the first instant behind which something is to be done with the lock. What sessions do to it is
// not among that.
func (t *Table) dueOf(l *lock) int64 { return min(t.grantsDueOf(l), t.waitsDueOf(l)) }

// waitsDueOf is the first end of a wait.
func (t *Table) waitsDueOf(l *lock) int64 {
	if l.waiters() > 0 {
		if w := t.firstWaitEnd(l); w != nil {
			return w.deadline
		}
	}
	return never
}

// grantsDueOf is dueOf without the ends of waits: what may let a waiter be granted.
func (t *Table) grantsDueOf(l *lock) int64 {
	due := int64(never)
	if l.hold != nil {
		due = l.hold.deadline
	}
	m := l.more
	if m == nil {
		return due
	}
	if t.lostOf(l) != nil {
		return past
	}
	if m.holders > 1 {
		due = t.firstEnd(l)
	}
	if m.delay != 0 {
		due = min(due, m.delay)
	}
	if m.unfinished != 0 {
		due = min(due, m.unfinished-1)
	}
	return due
}

// workDropped takes a step: it removes a waiter of the first node, or finds that none is left.
func (t *Table) workDropped() {
	t.pay()
	if w := t.firstOf(t.drops[0].Origin.Node); w != nil && t.dropped(w) {
		t.dismiss(w, ErrDropped)
		return
	}
	t.drops = slices.Delete(t.drops, 0, 1)
}
