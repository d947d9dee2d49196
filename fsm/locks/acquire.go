package locks

import (
	"slices"
	"strings"

	"github.com/holdfast/holdfast/fsm/waits"
)

// Acquire grants all locks of a request, or adds the request to their queues, or refuses the request. The table keeps
// no reference to r, except in [Event.Again].
func (t *Table) Acquire(r *Request) (Answer, error) {
	defer t.finishStep()
	q := *r
	if err := t.prepareRequest(&q); err != nil {
		return Answer{}, err
	}
	t.settleKeys(&q)
	fence, err := t.renewCoveringHolds(&q)
	if fence != 0 || err != nil {
		return Answer{Fence: fence}, err
	}
	old := t.repeatedWaiter(&q)
	order, since := uint64(noOrder), t.now
	if old != nil {
		order, since = old.order, old.since
	}
	index, blocked := t.firstBlockingKey(&q, order)
	switch {
	case (old == nil || old.session != q.Session) && t.isSessionFull(q.Session, t.countNewSessionHolds(&q)):
		return Answer{}, ErrSessionFull
	case blocked && !q.Waits:
		return Answer{}, nil
	case blocked:
		return t.joinQueues(&q, old, index)
	case t.fences >= MaxFence:
		return Answer{}, ErrFull
	}
	t.endReplacedWaits(&q, old)
	q.cloneTexts()
	return Answer{Fence: t.grant(&q, since)}, nil
}

// prepareRequest validates a request and normalizes its fields in place: it removes repeated keys, clears fields that
// the mode or the session makes meaningless, and caps durations at [Forever]. If the session of the request has
// expired, prepareRequest ends the session and returns [ErrNoSession].
func (t *Table) prepareRequest(q *Request) error {
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
	case q.Session != 0 && t.settleSession(q.Session) == nil:
		return ErrNoSession
	}
	q.LeaseMillis, q.DelayMillis = min(q.LeaseMillis, Forever), min(q.DelayMillis, Forever)
	q.WaitMillis, q.GraceMillis = min(q.WaitMillis, Forever), min(q.GraceMillis, Forever)
	return nil
}

// distinct returns the first occurrence of each key, in the order of the argument.
func distinct(keys []string) (kept []string) {
	for _, key := range keys {
		if !slices.Contains(kept, key) {
			kept = append(kept, key)
		}
	}
	return kept
}

// settleKeys settles the first lock of a request, and the other locks while the budget lasts. At a lock that it does
// not settle, it only removes the owner's hold if that hold has ended. A lock with a due event blocks the request.
func (t *Table) settleKeys(q *Request) {
	for i, key := range q.Keys {
		l := t.find(q.DB, key)
		if l != nil && (i == 0 || t.hasBudget()) {
			l = t.settle(l, t.now)
			t.grantQueue(l, false)
		} else if l != nil {
			t.loseEndedHold(l, q.Owner)
		}
	}
}

// renewCoveringHolds renews the owner's holds and returns their fence, if the owner holds all locks of the request
// under one fence. Otherwise it changes nothing and returns 0. It returns [ErrMode] if a hold does not cover the
// request.
func (t *Table) renewCoveringHolds(q *Request) (fence uint64, err error) {
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
	case t.isSessionFull(q.Session, t.countNewSessionHolds(q)):
		return 0, ErrSessionFull
	}
	for _, key := range q.Keys {
		l := t.findMutable(q.DB, key)
		t.renewHold(l, l.holdOf(q.Owner), q)
	}
	return fence, nil
}

// countNewSessionHolds counts the holds that the request would add to its session.
func (t *Table) countNewSessionHolds(q *Request) (n int) {
	for _, key := range q.Keys {
		if h := t.find(q.DB, key).holdOf(q.Owner); h == nil || h.session() != q.Session {
			n++
		}
	}
	return n
}

// renewHold renews a hold with the lease or the session of the request. The request's note and delay replace those of
// the hold, unless they are empty. A reentrant request increments the count of the hold.
func (t *Table) renewHold(l *lock, old *hold, q *Request) {
	h := *old
	h.knownToOwner, h.lateEmitted = true, t.emitLate(old, t.now)
	h.bind(t.now, q)
	h.origin, h.conn = t.internOrigin(q.Client.Origin), q.Client.Conn
	x := extra{}
	if h.extra != nil {
		x = *h.extra
	}
	if q.Reentrant && h.count < maxCount && (q.Call == "" || q.Call != x.call) {
		h.count++
		x.call = strings.Clone(q.Call)
	}
	if q.Note != "" {
		x.note = strings.Clone(q.Note)
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

// repeatedWaiter returns the waiter that the request repeats, or nil. That waiter has the same owner, keys, mode, limit
// and permits.
func (t *Table) repeatedWaiter(q *Request) *waiter {
	w := t.waiterOf(t.find(q.DB, q.Keys[0]), q.Owner)
	if w == nil || w.mode != q.Mode || w.limit != q.Limit || w.permits != q.Permits || len(w.keys()) != len(q.Keys) ||
		t.lapseError(w) != nil {
		return nil
	}
	for _, key := range q.Keys {
		if t.waiterOf(t.find(q.DB, key), q.Owner) != w {
			return nil
		}
	}
	return w
}

// endReplacedWaits ends each wait of the owner for any of the keys of a new request, because an owner has at most one
// entry in a queue. The waiter that the request repeats is granted next, so no [LeftQueue] is emitted for it.
func (t *Table) endReplacedWaits(q *Request, repeated *waiter) {
	for _, key := range q.Keys {
		w := t.waiterOf(t.find(q.DB, key), q.Owner)
		if w == nil {
			continue
		}
		if err := t.lapseError(w); err != nil {
			t.dismiss(w, err)
			continue
		}
		t.dequeueWaiter(w)
		t.wakeQueuesOf(w)
		t.emitAskedAgain(w, q)
		if w != repeated {
			t.emitLeft(w, Replaced)
		}
	}
}

// emitAskedAgain emits [WaitEnded] with [ErrAskedAgain] for a waiter whose owner sent a later request.
func (t *Table) emitAskedAgain(w *waiter, later *Request) {
	e := t.waitEndedEvent(w, 0, ErrAskedAgain)
	if w.client() == later.Client {
		e.Again = later.Keys
	}
	if !w.absent {
		t.emit(e)
	}
}

// joinQueues adds a request to the queues of all its keys. If the request repeats a waiter (old), it takes over the
// entries of that waiter. Otherwise it joins the tail. The key with the index blockingKey blocks the request.
func (t *Table) joinQueues(q *Request, old *waiter, blockingKey int) (Answer, error) {
	if t.waiterNamed(waits.Name{Origin: q.Client.Origin, Ticket: q.Ticket}) != nil {
		return Answer{}, ErrTicket
	}
	if q.OverQuota && old == nil {
		return Answer{}, ErrOverQuota
	}
	// A waiter has an entry in each queue, also at a lock that its owner holds.
	if (old == nil || old.session != q.Session) && t.isSessionFull(q.Session, len(q.Keys)) {
		return Answer{}, ErrSessionFull
	}
	q.cloneTexts()
	w := newWaiter(q, t.internOrigin(q.Client.Origin), t.now)
	w.blockingKey = uint8(blockingKey)
	if q.WaitMillis > 0 {
		w.deadline = addSaturating(t.now, q.WaitMillis)
	}
	if t.waitingBytes+w.bytes() > MaxWaitingBytes {
		return Answer{}, ErrFull
	}
	for _, key := range q.Keys {
		if l := t.find(q.DB, key); l.waiters() >= MaxWaiters && t.waiterOf(l, q.Owner) == nil {
			return Answer{}, ErrFull
		}
	}
	if old != nil {
		w.order, w.since = old.order, old.since
		copy(w.keys(), old.keys())
		w.blockingKey = uint8(slices.Index(old.keys(), q.Keys[blockingKey]))
		t.replaceWaiter(old, w)
		t.wakeQueueIfHoldEnded(w)
		if old.deadline < t.now {
			t.wakeQueuesOf(w) // replaceWaiter has removed a due event that would have woken these queues
		}
		t.emitAskedAgain(old, q)
		return Answer{Waiting: true, Kept: true}, nil
	}
	t.endReplacedWaits(q, nil)
	t.orders++
	w.order = t.orders
	for i, key := range q.Keys {
		w.keys()[i] = t.findOrMake(q.DB, key).key()
	}
	t.enqueueWaiter(w)
	t.wakeQueueIfHoldEnded(w)
	for _, key := range w.keys() {
		e := t.waitEvent(JoinedQueue, w, key)
		e.Waiters = t.find(e.DB, key).waiters()
		t.emit(e)
	}
	return Answer{Waiting: true}, nil
}

// cloneTexts copies the owner, the note and the call of a request in one allocation, so that they do not keep the
// memory of a log entry alive. The keys need no copy, because each lock has a copy of its key.
func (r *Request) cloneTexts() {
	all := strings.Join([]string{r.Owner, r.Note, r.Call}, "")
	r.Owner, all = all[:len(r.Owner)], all[len(r.Owner):]
	r.Note, r.Call = all[:len(r.Note)], all[len(r.Note):]
}
