package locks

// isCompatible reports whether the present holds of a lock allow a request to be granted.
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

// covers reports whether a hold is at least as strong as the hold that its owner requests.
func covers(h *hold, r *Request) bool {
	return h.mode == Exclusive || h.mode == r.Mode && (h.mode != Permits || int64(r.Permits) <= h.permits())
}

// isGrantable reports whether a request could be granted the lock of a key now. The order of a request that is in no
// queue is noOrder.
func (e *engine) isGrantable(key string, r *Request, order uint64) bool {
	l := e.find(r.DB, key)
	switch h := l.holdOf(r.Owner); {
	case l == nil:
		return true
	case h != nil:
		return covers(h, r) && !e.hasEnded(l, h, e.now) // a due event cannot block the present holder
	case e.hasDueBeforeGrant(l):
		return false // the due event will wake the queue
	}
	return !l.delayed() && isCompatible(l, r) && !e.isBlockedByQueue(l, r, order)
}

// firstBlockingKey returns the index of the first key that blocks a request. It reports false if no key does.
func (e *engine) firstBlockingKey(r *Request, order uint64) (index int, ok bool) {
	for i, key := range r.Keys {
		e.charge(0, 1)
		if !e.isGrantable(key, r, order) {
			return i, true
		}
	}
	return 0, false
}

// grantQueue grants a woken lock to its waiters in line, until the next waiter is blocked. If the budget is spent
// first, or if a due event of the lock must run first, the remaining grants become pending. If dueEventsRun is true,
// the caller has just run such events, and grantQueue does not look for more.
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

// wakeQueueIfHoldEnded wakes the queue of the lock that blocks a waiter, if a hold of that lock has ended but has not
// been removed. Such a hold blocks even compatible requests. Its removal would wake the queue, but the hold is not
// removed if its session is renewed before that. The wake-up makes the grant of a compatible request pending.
func (e *engine) wakeQueueIfHoldEnded(w *waiter) {
	if l := e.findMutable(int(w.db), w.keys()[w.blockingKey]); e.hasEndedHold(l, e.readAt) {
		e.wakeQueue(l)
	}
}

// tryGrant grants the request of a waiter that is next in line at the lock where it is awake. If another lock of the
// request blocks the waiter, the waiter becomes awake at that lock instead. If the waiter's node or session has ended,
// tryGrant dismisses the waiter.
func (e *engine) tryGrant(w *waiter) {
	if err := e.lapseError(w); err != nil {
		e.dismiss(w, err)
		return
	}
	e.charge(1, 0)
	if e.loseEndedHold(e.find(int(w.db), w.keys()[w.blockingKey]), w.owner) {
		return // the loss woke the queue, or started a delay
	}
	q := w.request()
	for i := 1; i < len(q.Keys); i++ { // the key at blockingKey does not block the request any more
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
		e.wakeQueuesOf(w) // dequeueWaiter has removed a due event that would have woken these queues
	}
	e.emitEndOfWait(w, fence, nil)
}

// issueFence returns a new fence, which is larger than all fences before. The last fence must be below [MaxFence].
func (e *engine) issueFence() uint64 {
	e.fences++
	return e.fences
}

// grant gives the owner of a request a hold of each lock, all with one new fence, and returns the fence. The owner has
// waited since waitStart. No key may block the request.
func (e *engine) grant(r *Request, waitStart int64) (fence uint64) {
	fence = e.issueFence()
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
		event := e.holdEvent(Granted, h)
		event.SinceMillis, event.WaitedMillis = heldSince, e.now-waitStart
		e.emit(event)
	}
	return fence
}

// holdFor returns a new hold of the lock for a request. The caller sets the fence.
func (e *engine) holdFor(l *lock, r *Request) *hold {
	h := &hold{
		key: l.key(), owner: r.Owner, since: e.now, origin: e.internOrigin(r.Client.Origin), conn: r.Client.Conn,
		count: 1, mode: r.Mode, db: uint8(l.db()),
	}
	h.bind(e.now, r)
	if r.Note != "" || r.Call != "" || r.DelayMillis != 0 || r.Mode == Permits {
		h.extra = &extra{note: r.Note, call: r.Call, delay: r.DelayMillis, permits: int64(r.Permits)}
	}
	return h
}
