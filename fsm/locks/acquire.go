package locks

import (
	"slices"
	"strings"

	"github.com/holdfast/holdfast/fsm/waits"
)

// Acquire asks for the locks of a request: it grants them, puts the request into their queues, or refuses. The caller
// may change r afterwards.
func (t *Table) Acquire(r *Request) (Answer, error) {
	defer t.finish()
	q := *r
	if err := t.check(&q); err != nil {
		return Answer{}, err
	}
	t.settleAll(&q)
	fence, err := t.renewHeld(&q)
	if fence != 0 || err != nil {
		return Answer{Fence: fence}, err
	}
	same := t.sameRequest(&q)
	order := uint64(noOrder)
	if same != nil {
		order = same.order
	}
	at, blocked := t.blockedAt(&q, order)
	switch {
	case (same == nil || same.session != q.Session) && t.isFull(q.Session, t.countUnbound(&q)):
		return Answer{}, ErrSessionFull
	case blocked && !q.Waits:
		return Answer{}, nil
	case blocked:
		return t.enqueue(&q, same, at)
	case t.fences >= MaxFence:
		return Answer{}, ErrFull
	}
	since := t.now
	if same != nil {
		since = same.since
	}
	t.dismissAll(&q, same)
	q.cloneTexts()
	return Answer{Fence: t.grant(&q, since)}, nil
}

// check validates a request, and brings it into the form that is stored. It ends the request's session if the session
// is due.
func (t *Table) check(q *Request) error {
	if q.Mode == Permits && q.Limit == 1 {
		q.Mode = Exclusive
	}
	if q.Mode != Permits {
		q.Limit, q.Permits = 0, 0
	}
	if q.Session != 0 {
		q.LeaseMillis = 0
	}
	q.Waits = q.Waits && q.Ticket != 0
	if !q.Reentrant {
		q.Call = ""
	}
	if n := len(q.Keys); n > 1 && n <= MaxKeys {
		q.Keys = distinct(q.Keys)
	}
	switch {
	case len(q.Keys) < 1, len(q.Keys) > MaxKeys, q.DB < 0, q.DB >= maxDatabases,
		q.Mode > Permits, q.Mode == Permits && (q.Permits < 1 || q.Permits > q.Limit),
		q.Session == 0 && q.LeaseMillis < 1, q.WaitMillis < 0, q.DelayMillis < 0, q.GraceMillis < 0,
		q.Ticket == ^uint64(0):
		return ErrRequest
	case len(q.Owner) > MaxText, len(q.Note) > MaxText, len(q.Call) > MaxText:
		return ErrTooLong
	case q.Session != 0 && t.liveSession(q.Session) == nil:
		return ErrNoSession
	}
	q.LeaseMillis, q.DelayMillis = min(q.LeaseMillis, Forever), min(q.DelayMillis, Forever)
	q.WaitMillis, q.GraceMillis = min(q.WaitMillis, Forever), min(q.GraceMillis, Forever)
	return nil
}

// distinct returns keys without repetitions, in their order.
func distinct(keys []string) (kept []string) {
	for _, key := range keys {
		if !slices.Contains(kept, key) {
			kept = append(kept, key)
		}
	}
	return kept
}

// settleAll settles the first lock of a request, and the others while the budget lasts. A lock that is not settled
// blocks the request.
func (t *Table) settleAll(q *Request) {
	for i, key := range q.Keys {
		l := t.find(q.DB, key)
		if l != nil && (i == 0 || t.hasBudget()) {
			l = t.settle(l, t.now)
			t.grantQueue(l, false)
		} else if l != nil {
			t.loseEnded(l, q.Owner)
		}
	}
}

// renewHeld renews the owner's holds if they cover the request, and returns their fence. The fence is 0 if the owner
// lacks one of the locks, or holds them under different fences. ErrMode: a hold does not cover the request.
func (t *Table) renewHeld(q *Request) (fence uint64, err error) {
	all := true
	for _, key := range q.Keys {
		switch h := t.find(q.DB, key).holdOf(q.Owner); {
		case h == nil:
			all = false
		case !covers(h, q):
			return 0, ErrMode
		case fence != 0 && fence != h.fence:
			all = false
		default:
			fence = h.fence
		}
	}
	switch {
	case !all:
		return 0, nil
	case t.isFull(q.Session, t.countUnbound(q)):
		return 0, ErrSessionFull
	}
	for _, key := range q.Keys {
		l := t.findMutable(q.DB, key)
		t.renewHold(l, l.holdOf(q.Owner), q)
	}
	return fence, nil
}

// countUnbound counts the locks of a request that the owner does not hold with the request's session.
func (t *Table) countUnbound(q *Request) (n int) {
	for _, key := range q.Keys {
		if h := t.find(q.DB, key).holdOf(q.Owner); h == nil || h.session() != q.Session {
			n++
		}
	}
	return n
}

// renewHold renews a hold for another request of its owner.
func (t *Table) renewHold(l *lock, old *hold, q *Request) {
	h := *old
	h.asked, h.late = true, t.emitLate(old, t.now)
	h.bind(t.now, q)
	h.origin, h.conn = t.origin(q.Client.Origin), q.Client.Conn
	x := extra{}
	if h.extra != nil {
		x = *h.extra
	}
	if q.Reentrant && h.count < maxCount && (q.Call == "" || q.Call != x.call) {
		h.count++
		x.call = cloned(q.Call)
	}
	if q.Note != "" {
		x.note = cloned(q.Note)
	}
	if q.DelayMillis != 0 {
		x.delay = q.DelayMillis
	}
	if x != (extra{}) && (h.extra == nil || x != *h.extra) {
		h.extra = &x
	}
	t.replaceHold(l, old, &h)
	if h.client() != old.client() || h.session() != old.session() {
		t.emit(t.holdEvent(Renewed, &h))
	}
}

const maxCount = 1<<32 - 1

// sameRequest returns the owner's waiter if it waits for exactly the locks and the mode of a request, or nil.
func (t *Table) sameRequest(q *Request) *waiter {
	w := t.waiterOf(t.find(q.DB, q.Keys[0]), q.Owner)
	if w == nil || w.mode != q.Mode || w.limit != q.Limit || w.permits != q.Permits || len(w.keys()) != len(q.Keys) ||
		t.whyLapsed(w) != nil {
		return nil
	}
	for _, key := range q.Keys {
		if t.waiterOf(t.find(q.DB, key), q.Owner) != w {
			return nil
		}
	}
	return w
}

// dismissAll ends the owner's waits for any lock of a request. same is the waiter that the caller grants next.
func (t *Table) dismissAll(q *Request, same *waiter) {
	for _, key := range q.Keys {
		w := t.waiterOf(t.find(q.DB, key), q.Owner)
		if w == nil {
			continue
		}
		if err := t.whyLapsed(w); err != nil {
			t.dismiss(w, err)
			continue
		}
		t.removeQueue(w)
		t.wakeAll(w)
		t.emitAskedAgain(w, q)
		if w != same {
			t.emitLeft(w, Replaced)
		}
	}
}

// emitAskedAgain emits that a wait ended because its owner sent another request, q.
func (t *Table) emitAskedAgain(w *waiter, q *Request) {
	e := t.waitEndedEvent(w, 0, ErrAskedAgain)
	if w.client() == q.Client {
		e.Again = q.Keys
	}
	if !w.absent {
		t.emit(e)
	}
}

// enqueue puts a request into the queues of its locks: in the place of same, or at the tail. blocked is the index of a
// key that blocks the request.
func (t *Table) enqueue(q *Request, same *waiter, blocked int) (Answer, error) {
	if t.named(waits.Name{Origin: q.Client.Origin, Ticket: q.Ticket}) != nil {
		return Answer{}, ErrTicket
	}
	if q.OverQuota && same == nil {
		return Answer{}, ErrOverQuota
	}
	if (same == nil || same.session != q.Session) && t.isFull(q.Session, len(q.Keys)) {
		return Answer{}, ErrSessionFull // a waiter has a place at each lock, even if its owner holds the lock
	}
	q.cloneTexts()
	w := newWaiter(q, t.origin(q.Client.Origin), t.now)
	w.blocked = uint8(blocked)
	if q.WaitMillis > 0 {
		w.deadline = saturated(t.now, q.WaitMillis)
	}
	if t.waitingBytes+w.bytes() > MaxWaitingBytes {
		return Answer{}, ErrFull
	}
	for _, key := range q.Keys {
		if l := t.find(q.DB, key); l.waiters() >= MaxWaiters && t.waiterOf(l, q.Owner) == nil {
			return Answer{}, ErrFull
		}
	}
	if same != nil {
		w.order, w.since = same.order, same.since
		copy(w.keys(), same.keys())
		w.blocked = uint8(slices.Index(same.keys(), q.Keys[blocked]))
		t.replaceWaiter(same, w)
		t.wakeIfHoldEnded(w)
		if same.deadline < t.now {
			t.wakeAll(w) // as the end of the wait or of the grace, which was due, would have
		}
		t.emitAskedAgain(same, q)
		return Answer{Waiting: true, Kept: true}, nil
	}
	t.dismissAll(q, nil)
	t.orders++
	w.order = t.orders
	for i, key := range q.Keys {
		w.keys()[i] = t.findOrMake(q.DB, key).key()
	}
	t.pushQueue(w)
	t.wakeIfHoldEnded(w)
	for _, key := range w.keys() {
		e := t.waitEvent(JoinedQueue, w, key)
		e.Waiters = t.find(e.DB, key).waiters()
		t.emit(e)
	}
	return Answer{Waiting: true}, nil
}

// cloneTexts copies the texts of a request, in one allocation, so that they share no memory with a log entry. A new
// lock copies its key itself.
func (r *Request) cloneTexts() {
	all := strings.Join([]string{r.Owner, r.Note, r.Call}, "")
	r.Owner, all = all[:len(r.Owner)], all[len(r.Owner):]
	r.Note, r.Call = all[:len(r.Note)], all[len(r.Note):]
}
