package locks

import "github.com/holdfast/holdfast/protocol/mutant"

// Sweep does what is due or unfinished, in the order of time, while there are steps.
func (t *Table) Sweep() {
	if !t.sliced {
		t.sweep()
		return
	}
	if mutant.LockSlowEnd {
		t.steps = min(t.steps, StepUnits)
		t.sweep()
		return
	}
	t.sweepSlice()
}

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
		if mutant.LockSession {
			break
		}
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
	t.settleOwn(l, 0)
	return l
}

// settleOwn does what is due at a lock while there are more steps than floor.
func (t *Table) settleOwn(l *lock, floor int) {
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
		t.steps += t.price() // pump pays
	case wait < t.now:
		t.behind(wait)
		t.endWait(w)
	}
}

// firstHoldEnd is the hold that ends first, as far as the lock knows.
func (t *Table) firstHoldEnd(l *lock) (*hold, int64) {
	switch {
	case l.hold != nil && l.hold.deadline != never:
		return l.hold, l.hold.deadline
	case l.hold != nil:
		s := t.session(l.hold.bound)
		if s.over {
			return l.hold, min(s.deadline, t.now-1)
		}
		return l.hold, t.endOf(s)
	case l.holders() > 1:
		if m, ok := seek(t.byEnd, member{l.id(), firstEnding}); ok && m.lock == l.id() {
			return m.hold, m.hold.deadline
		}
	}
	return nil, never
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
	if t.sliced && why.at < mark.at {
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
	for _, key := range w.Keys {
		t.tell(Effect{
			Kind: TimedOut, DB: w.DB, Key: t.find(w.DB, key).key, Owner: w.Owner, Session: w.Session,
			Client: w.Client, WaitedMillis: t.now - w.since,
		})
	}
	told := t.endOfWait(w, 0, nil)
	told.ByTime = true
	t.tell(told)
	if w.GraceMillis <= 0 {
		t.unline(w)
		t.tellLeft(w, OutOfTime)
	} else {
		kept := *w
		kept.absent, kept.deadline = true, saturated(w.deadline, w.GraceMillis)
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
