package locks

// isCompatible reports whether the present holds of a lock allow a grant of the lock to a request.
func isCompatible(l *lock, r *Request) bool {
	first := l.anyHold()
	switch {
	case first == nil:
		return true
	case first.mode != r.Mode || l.holders() >= MaxHolders:
		return false
	case r.Mode == Shared:
		return true
	case r.Mode == Permits:
		return l.permits()+int64(r.Permits) <= int64(r.Limit)
	default:
		return false
	}
}

// covers reports whether a hold is at least as strong as the hold that a request of the same owner asks for.
func covers(h *hold, r *Request) bool {
	return h.mode == Exclusive || h.mode == r.Mode && (h.mode != Permits || int64(r.Permits) <= h.permits())
}

// isGrantable reports whether the lock of a key could be granted to a request now. If the request is in the queue,
// order is the order of the waiter. Otherwise order is noOrder.
func (e *engine) isGrantable(key string, r *Request, order uint64) bool {
	l := e.find(r.DB, key)
	switch h := l.holdOf(r.Owner); {
	case l == nil:
		return true
	case h != nil:
		return covers(h, r) && !e.hasEnded(l, h, e.now) // other due events do not block a present holder
	case e.hasDueBeforeGrant(l):
		return false // the due event wakes the queue when it runs
	}
	return !l.delayed() && isCompatible(l, r) && !e.isBlockedByQueue(l, r, order)
}

// firstBlockingKey returns the index of the first key that blocks a request. ok is false if no key blocks the request.
func (e *engine) firstBlockingKey(r *Request, order uint64) (index int, ok bool) {
	for i, key := range r.Keys {
		e.charge(0, 1)
		if !e.isGrantable(key, r, order) {
			return i, true
		}
	}
	return 0, false
}

// grantQueue grants a woken lock to one waiter after the other, until [queues.nextInLine] returns nil. It stops
// earlier if the budget is spent, or if a due event of the lock must run first; the other grants are then pending. If
// dueEventsRun is true, the caller has run these due events, and grantQueue does not look for them. If the lock is not
// woken, grantQueue does nothing.
func (e *engine) grantQueue(l *lock, dueEventsRun bool) {
	if l.idAndFlags&flagWoken == 0 {
		return
	}
	l.idAndFlags &^= flagWoken
	m := l.ext
	if m == nil {
		return
	}
	since := max(e.readAt, 1)
	if m.grantPendingSince != 0 {
		since = min(since, m.grantPendingSince)
	}
	m.grantPendingSince = 0
	w := e.nextInLine(l)
	ready := w != nil && (dueEventsRun || !e.hasDueBeforeGrant(l))
	for ; w != nil; w = e.nextInLine(l) {
		if !ready || !e.hasBudget() {
			m.grantPendingSince = since
			return
		}
		e.tryGrant(w)
	}
}

// wakeQueueIfHoldEnded wakes the queue of the lock that blocks a waiter, if that lock has an ended hold that is not
// yet removed. An ended hold blocks even a compatible request. Usually the removal of the hold wakes the queue. But if
// the session of the hold is renewed first, the hold stays, and nothing else would wake the queue. The wake-up leaves
// a pending grant, so that a compatible request is granted in both cases.
func (e *engine) wakeQueueIfHoldEnded(w *waiter) {
	if l := e.findMutable(int(w.db), w.keys()[w.blockingKey]); e.hasEndedHold(l, e.readAt) {
		e.wakeQueue(l)
	}
}

// tryGrant grants all locks of a request to a waiter. The waiter is awake at one lock, and is next in line there. If
// another lock of the request blocks the waiter, no lock is granted, and the waiter becomes awake at that lock. If the
// waiter's node or session has ended, tryGrant dismisses the waiter.
func (e *engine) tryGrant(w *waiter) {
	e.charge(1, 0)
	if err := e.lapseError(w); err != nil {
		e.dismiss(w, err)
		return
	}
	if e.loseEndedHold(e.find(int(w.db), w.keys()[w.blockingKey]), w.owner) {
		return // the loss put the lock in wokenLocks, so the grant is tried again, unless a delay has started
	}
	q := w.request()
	for i := 1; i < len(q.Keys); i++ { // the key at blockingKey no longer blocks the request
		e.charge(0, 1)
		at := (int(w.blockingKey) + i) % len(q.Keys)
		e.loseEndedHold(e.find(q.DB, q.Keys[at]), q.Owner)
		if e.isGrantable(q.Keys[at], &q, w.order) {
			continue
		}
		moved := *w
		moved.blockingKey = uint8(at)
		e.replaceWaiter(w, &moved)
		e.wakeQueueIfHoldEnded(&moved)
		return
	}
	if e.fences >= MaxFence {
		e.dismiss(w, ErrFull)
		return
	}
	e.dequeueWaiter(w)
	fence := e.grant(&q, w.since)
	if w.deadline < e.now {
		e.wakeQueuesOf(w) // the end of the wait was due and would have woken the queues, but is now removed
	}
	e.emitEndOfWait(w, fence, nil)
}

// grant gives the owner of a request a hold of each lock of the request, and returns the fence. All these holds get
// the same new fence. If the owner already holds a lock, the new hold keeps the mode, the count and the start of the
// old hold. waitStart is the time at which the owner began to wait, or the current time if there was no wait.
//
// Requires: no key blocks the request, and the last fence is below [MaxFence].
func (e *engine) grant(r *Request, waitStart int64) (fence uint64) {
	e.fences++
	fence = e.fences
	for _, key := range r.Keys {
		l := e.findOrMake(r.DB, key)
		h := e.holdFor(l, r)
		h.fence = fence
		heldSince := int64(0)
		if old := l.holdOf(r.Owner); old != nil {
			h.mode, h.count, h.since, heldSince = old.mode, old.count, old.since, old.since
			if old.mode == Permits {
				h.extra = old.extra
			}
			e.replaceHold(l, old, h)
		} else {
			e.addHold(l, h)
		}
		event := e.emitHold(Granted, l.key(), h)
		event.SinceMillis, event.WaitedMillis = heldSince, e.now-waitStart
	}
	return fence
}

// holdFor returns a new hold of the lock for a request. The caller sets the fence.
func (e *engine) holdFor(l *lock, r *Request) *hold {
	h := &hold{
		owner: r.Owner, since: e.now, origin: e.internOrigin(r.Client.Origin), conn: r.Client.Conn,
		extra: noExtra, count: 1, mode: r.Mode, db: uint8(l.db()),
	}
	h.bind(e.now, r)
	if r.Note != "" || r.Call != "" || r.DelayMillis != 0 || r.Mode == Permits {
		h.extra = &extra{note: r.Note, call: r.Call, delay: r.DelayMillis, permits: int64(r.Permits)}
	}
	return h
}
