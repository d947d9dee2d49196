package locks

import (
	"slices"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// engine runs what is due in a store, and grants.
type engine struct{ store }

// Sweep runs what is due in the order of time, while the budget lasts. If half of it does not suffice, what concerns a
// queue has a turn of its own: a lease that nobody waits for concerns nothing else, and may end whenever.
func (e *engine) Sweep() {
	half := max(0, e.steps) / 2
	e.steps -= half
	for e.hasSteps() && e.runFirst(true) {
	}
	e.steps += half - half/2
	for e.hasSteps() && e.runFirst(false) {
	}
	e.steps += half / 2
	for e.hasSteps() && e.runFirst(true) {
	}
}

// runFirst runs what is due first: among drops, flushed databases, sessions, and locks with a queue; quiet: and other
// locks. It reports whether anything was due.
func (e *engine) runFirst(quiet bool) bool {
	defer e.finish()
	if len(e.drops) > 0 {
		e.removeDropped()
		return true
	}
	if d, l := e.firstFlushed(); l != nil && (quiet || l.contended()) {
		e.moveFlushed(e.own(l))
		return true
	} else if d != nil && l == nil {
		e.charge(0, 1)
		e.flushed = slices.DeleteFunc(e.flushed, func(o *database) bool { return o == d })
		return true
	}
	l := e.firstLock(quiet)
	id, end := e.next()
	switch {
	case end < e.now && !(l != nil && l.due < end):
		e.endDue(id, end)
	case l != nil && l.due < e.now:
		l = e.own(l)
		h, end := l.firstLease()
		e.runNext(l, h, end, e.now)
	default:
		return false
	}
	return true
}

// runNext runs what is due first at a lock until an instant, of the end of hold h and what else is due there, and then
// looks at the queue. It reports whether anything was due.
//
// At one instant holds end first, then the delay, then the queue is granted the lock, then waits end: a request that
// waits until the very instant is granted.
func (e *engine) runNext(l *lock, h *hold, end, until int64) bool {
	delay, grant, wait, w := e.timers(l)
	switch first := min(end, delay, grant, wait); {
	case first >= until:
		return false
	case first == end:
		e.readAfter(end)
		e.lose(l, h, e.lossOf(l, h))
	case first == delay:
		e.readAfter(delay)
		e.charge(1, 0)
		l.more.delay = 0
	case first == grant:
		e.readAfter(grant)
	default:
		e.readAfter(wait)
		e.endWait(w)
	}
	e.wake(l)
	e.grantQueue(l, true)
	return true
}

// readAfter makes the call under way see locks as of just after an instant.
func (e *engine) readAfter(instant int64) { e.readAt = min(e.now, instant+1) }

// settle runs what is due at a lock until an instant, and returns it to be changed, or nil if there is none. Its holds
// that are over end whatever the budget: there are [MaxHolders] at most.
func (e *engine) settle(l *lock, until int64) *lock {
	if l == nil {
		return nil
	}
	l = e.own(l)
	if e.flushOf(l) != nil {
		e.moveFlushed(l)
	}
	if e.dueOf(l) >= until && !e.anyOver(l, until) {
		return l
	}
	over := e.holdsOver(l, until)
	next := func() (*hold, int64) {
		for ; len(over) > 0; over = over[1:] {
			if h := over[0]; l.holdOf(h.owner) == h {
				return h, e.lossOf(l, h).at
			}
		}
		return nil, never
	}
	more := true
	for more && e.hasSteps() {
		h, end := next()
		more = e.runNext(l, h, end, until)
	}
	for h, _ := next(); h != nil; h, _ = next() {
		e.lose(l, h, e.lossOf(l, h))
	}
	if l.more != nil && l.more.delay != 0 && l.more.delay < until {
		l.more.delay = 0
		e.wake(l)
	}
	e.readAt = e.now
	return l
}

// settled settles the lock of a key. Nil: there is none.
func (e *engine) settled(db int, key string) *lock { return e.settle(e.find(db, key), e.now) }

// Settle runs what is due at a key. Every method that names a key does that first.
func (e *engine) Settle(db int, key string) {
	e.settled(db, key)
	e.finish()
}

// anyOver reports whether a hold of a lock is over by an instant.
func (e *engine) anyOver(l *lock, until int64) bool {
	if _, end := l.firstLease(); end < until {
		return true
	}
	if l.hold != nil {
		return e.isOver(l, l.hold, until)
	}
	return l.holders() > 0 && l.more.sessionHolds > 0 && e.anyEnds(until) &&
		slices.ContainsFunc(l.holds(), func(h *hold) bool { return e.isOver(l, h, until) })
}

// holdsOver are the holds of a lock that are over by an instant, in the order in which they end.
func (e *engine) holdsOver(l *lock, until int64) (over []*hold) {
	if !e.anyOver(l, until) {
		return nil
	}
	for _, h := range l.holds() {
		if e.isOver(l, h, until) {
			over = append(over, h)
		}
	}
	e.charge(0, l.holders()/StepUnits)
	e.sortByEnd(l, over)
	return over
}

// isDueFirst reports whether something is due at a lock that comes before a grant: at one instant waits end last.
func (e *engine) isDueFirst(l *lock) bool {
	if e.flushOf(l) != nil || e.anyOver(l, e.readAt) {
		return true
	}
	delay, grant, wait, _ := e.timers(l)
	return min(delay, grant) < e.readAt || wait < e.readAt-1
}

// endDue ends a session whose time is over; or, if its node was heard of since its own lease began, lets the
// session live with the node again.
func (e *engine) endDue(id uint64, end int64) {
	s := e.ownSession(id)
	if last := e.endOf(s); s.leased && !s.closed && last > end {
		e.charge(1, 0)
		e.unschedule(s)
		e.attached.Set(sessionKey{s.origin, s.lease, s.id})
		return
	}
	e.endSession(id, e.endOf(s))
}

// endSession ends a session as a whole, with its requests in line and its holds; at was its last instant. Nothing is
// granted before the last hold has ended, which may bring a delay.
func (e *engine) endSession(id uint64, at int64) {
	s := e.ownSession(id)
	connected := s.origin != nil && !s.closed
	told := Event{Kind: SessionEnded, Session: id, LeaseMillis: s.lease, HeldMillis: at - s.opened}
	if s.origin != nil {
		told.Client = Client{*s.origin, s.conn}
		told.Attached = told.Client
	}
	e.emit(told)
	e.emitLateSession(s, at)
	e.unschedule(s)
	s.closed, s.deadline = true, at
	e.charge(1, 0)
	e.events = slices.Grow(e.events, 2*int(s.holds)) // of each hold the loss, and mostly the end of the lock
	for s = e.session(id); s.waiters > 0; s = e.session(id) {
		w, _ := seek(e.waitsOf, &waiter{session: id})
		e.dismiss(w, ErrNoSession)
	}
	for h := e.firstHold(id); h != nil; h = e.firstHold(id) {
		l := e.take(int(h.db), h.key)
		if e.hasSteps() && (e.dueOf(l) < at || e.flushOf(l) != nil) {
			e.settle(l, at)
		}
		e.readAfter(at)
		if l.holdOf(h.owner) == h {
			e.lose(l, h, e.lossOf(l, h))
		}
	}
	e.readAfter(at)
	s = e.ownSession(id)
	e.bytes -= s.bytes()
	e.byID.Delete(s)
	if connected {
		e.disconnect(s)
	}
}

// NextDue is the first instant at which something is due, a millisecond after its deadline. It lies in
// the past while something is left that was due.
func (s *store) NextDue() (millis int64, ok bool) {
	switch due := s.firstDue(); due {
	case never:
		return 0, false
	case past:
		return s.now, true
	default:
		return due + 1, true
	}
}

// firstDue is the first instant after which something is due. past: something is left that was due.
func (s *store) firstDue() int64 {
	if len(s.drops)+len(s.flushed) > 0 {
		return past
	}
	_, due := s.next()
	if l := s.firstLock(true); l != nil {
		due = min(due, l.due)
	}
	return due
}

// DueBetween reports whether anything is due until a later instant that is not due now.
func (s *store) DueBetween(after, until int64) bool { return after < until && s.firstDue() < until }

// DueAt reports whether a call that settles a key at an instant changes anything. It may say yes without need where
// sessions hold the lock together, or wait for it.
func (s *store) DueAt(db int, key string, now int64) bool {
	l := s.peek(db, key)
	if l == nil {
		return len(s.flushed) > 0 && s.search(new(lock), db, key, keyspace.Hash(key)) != nil
	}
	switch {
	case l.due < now, l.hold != nil && s.isOver(l, l.hold, now):
		return true
	case l.more == nil:
		return false
	}
	return l.more.sessionHolds+l.more.sessionWaits > 0 && s.anyEnds(now)
}

// lapsed says why a waiter is gone that is not removed yet. Nil: it is not gone.
func (e *engine) lapsed(w *waiter) error {
	switch {
	case e.isDropped(w):
		return ErrDropped
	case w.session != 0 && !e.isOpen(w.session, e.now):
		return ErrNoSession
	}
	return nil
}

// endWait ends a wait by time: the place is kept for the grace, or the grace is over too.
func (e *engine) endWait(w *waiter) {
	if err := e.lapsed(w); err != nil || w.absent {
		e.dismiss(w, err)
		return
	}
	e.charge(1, 0)
	for _, key := range w.keys() {
		e.emit(Event{
			Kind: TimedOut, DB: int(w.db), Key: e.find(int(w.db), key).key(), Owner: w.owner, Session: w.session,
			Client: w.client(), WaitedMillis: e.now - w.since,
		})
	}
	told := e.endOfWait(w, 0, nil)
	told.ByTime = true
	e.emit(told)
	if w.grace <= 0 {
		e.removeQueue(w)
		e.emitLeft(w, OutOfTime)
	} else {
		kept := *w
		kept.absent, kept.deadline = true, saturated(w.deadline, w.grace)
		e.replaceWaiter(w, &kept)
	}
	e.wakeAll(w)
}

// removeDropped removes a waiter of the first node that has dropped some, or notes that none is left.
func (e *engine) removeDropped() {
	if w := e.firstOf(e.drops[0].Origin.Node); w != nil && e.isDropped(w) {
		e.dismiss(w, ErrDropped)
		return
	}
	e.charge(1, 0)
	e.drops = slices.Delete(e.drops, 0, 1)
}

// finish does what follows from the changes of a call: it grants, removes locks without a purpose, and
// notes when locks are due. Every call that takes locks ends with it.
func (e *engine) finish() {
	for i := 0; i < len(e.woken); i++ {
		e.grantQueue(e.woken[i], false) // may wake more
	}
	clear(e.woken)
	e.woken = e.woken[:0]
	for _, l := range e.touched {
		l.head &^= flagTouched
		e.normalize(l)
	}
	clear(e.touched)
	e.touched = e.touched[:0]
	e.readAt, e.last = e.now, lastLookup{}
}
