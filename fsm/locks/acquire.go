package locks

import (
	"slices"
	"strings"

	"github.com/holdfast/holdfast/fsm/waits"
)

// Acquire handles a request for locks. If the owner holds all locks of the request under one fence, Acquire renews
// these holds. Otherwise Acquire grants all locks of the request, or adds the request to the queues of these locks, or
// refuses the request. The table copies what it keeps of r. Only [Event.Again] may share the slice Keys of r.
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
	case (old == nil || old.session() != q.Session) && t.isSessionFull(q.Session, t.countNewSessionHolds(&q)):
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

// prepareRequest validates a request, and normalizes the fields of the request in place. It removes repeated keys,
// clears fields that have no effect, and caps durations at [Forever]. A request for permits with the limit 1 becomes
// exclusive. If the session of the request does not exist or has ended, prepareRequest returns [ErrNoSession]. If the
// deadline of the session has passed, prepareRequest first runs the end of the session.
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

// distinct returns each key once. The keys are in the order of their first occurrences.
func distinct(keys []string) (kept []string) {
	for _, key := range keys {
		if !slices.Contains(kept, key) {
			kept = append(kept, key)
		}
	}
	return kept
}

// settleKeys settles the first lock of a request, and grants this lock to the next waiters. It does the same with each
// other lock while the budget lasts. After that, at each remaining lock, settleKeys only removes the hold of the
// request's owner if that hold has ended. A due event that is left at a lock can block the request: see
// [engine.isGrantable].
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
// under one fence. Otherwise it changes nothing and returns 0. It returns [ErrMode] if one of the owner's holds does
// not cover the request, and [ErrSessionFull] if the session has no room for the renewed holds.
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

// countNewSessionHolds counts the holds that the request's session would gain if the request were granted.
func (t *Table) countNewSessionHolds(q *Request) (n int) {
	for _, key := range q.Keys {
		if h := t.find(q.DB, key).holdOf(q.Owner); h == nil || h.session() != q.Session {
			n++
		}
	}
	return n
}

// renewHold renews an owner's hold, old, for a request of the owner. The renewed hold has the client of the request,
// and the session or the lease of the request. A note in the request replaces the note of the hold. A delay in the
// request replaces the delay of the hold. A reentrant request increments the count of the hold, unless the request has
// a call and the hold has the same call.
func (t *Table) renewHold(l *lock, old *hold, q *Request) {
	h := *old
	h.knownToOwner, h.lateEmitted = true, t.emitLate(l.key(), old, t.now)
	h.bind(t.now, q)
	h.origin, h.conn = t.internOrigin(q.Client.Origin), q.Client.Conn
	x := *h.extra
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
	if x != *h.extra {
		h.extra = &x
	}
	t.replaceHold(l, old, &h)
	if h.client() != old.client() || h.session() != old.session() {
		t.emitHold(Renewed, l.key(), &h)
	}
}

// repeatedWaiter returns the waiter that the request repeats, or nil. A request repeats a waiter with the same owner,
// mode, limit, permits and keys. The keys may be in another order. No request repeats a waiter whose node or session
// has ended.
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

// endReplacedWaits ends each wait of the request's owner for a key of the request, because an owner has at most one
// entry in a queue. If the request repeats a waiter, and will be granted at once, the caller passes this waiter as
// repeated. endReplacedWaits then emits no [LeftQueue] for this waiter. In all other cases the caller passes nil.
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

// emitAskedAgain emits [WaitEnded] with [ErrAskedAgain] for a waiter whose owner sent a later request. For an absent
// waiter it emits nothing, because WaitEnded was emitted when the grace began.
func (t *Table) emitAskedAgain(w *waiter, later *Request) {
	if e := t.emitEndOfWait(w, 0, ErrAskedAgain); e != nil && w.client() == later.Client {
		e.Again = later.Keys
	}
}

// joinQueues adds a request to the queues of all keys of the request. If the request repeats a waiter, old is that
// waiter, and the request takes over the waiter's entries. Otherwise old is nil, and the request joins the tail of
// each queue. blockingKey is the index of the key that blocks the request.
func (t *Table) joinQueues(q *Request, old *waiter, blockingKey int) (Answer, error) {
	if t.waiterNamed(waits.Name{Origin: q.Client.Origin, Ticket: q.Ticket}) != nil {
		return Answer{}, ErrTicket
	}
	if q.OverQuota && old == nil {
		return Answer{}, ErrOverQuota
	}
	// The session gains an entry for each key, even for a key whose lock the owner already holds.
	if (old == nil || old.session() != q.Session) && t.isSessionFull(q.Session, len(q.Keys)) {
		return Answer{}, ErrSessionFull
	}
	q.cloneTexts()
	w := t.newWaiter(q, t.internOrigin(q.Client.Origin), t.now)
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
			t.wakeQueuesOf(w) // the end of the old wait was due and would have woken the queues, but is now removed
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
		t.emitWait(JoinedQueue, w, key).Waiters = t.find(q.DB, key).waiters()
	}
	return Answer{Waiting: true}, nil
}

// cloneTexts replaces the owner, the note and the call of a request by copies, so that these strings do not keep a log
// entry in memory. The keys need no copies, because holds and waiters use the key strings of the locks.
func (r *Request) cloneTexts() {
	r.Owner, r.Note, r.Call = strings.Clone(r.Owner), strings.Clone(r.Note), strings.Clone(r.Call)
}
