package locks

// isCompatible reports whether a lock may be held by a request beside its present holds.
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

// covers reports whether a hold is at least what its owner asks for.
func covers(h *hold, r *Request) bool {
	return h.mode == Exclusive || h.mode == r.Mode && (h.mode != Permits || int64(r.Permits) <= h.permits())
}

// isGrantable reports whether a request may have the lock of a key now. order is its place in the queue, or noOrder.
func (e *engine) isGrantable(key string, r *Request, order uint64) bool {
	l := e.find(r.DB, key)
	switch h := l.holdOf(r.Owner); {
	case l == nil:
		return true
	case h != nil:
		return covers(h, r) && !e.hasEnded(l, h, e.now) // whatever else is due there
	case e.isDueFirst(l):
		return false // the event that is due there wakes the queue when it runs
	}
	return !l.delayed() && isCompatible(l, r) && e.isFree(l, r, order)
}

// blockedAt returns the index of the first key that blocks a request. ok: there is one.
func (e *engine) blockedAt(r *Request, order uint64) (index int, ok bool) {
	for i, key := range r.Keys {
		e.charge(0, 1)
		if !e.isGrantable(key, r, order) {
			return i, true
		}
	}
	return 0, false
}

// grantQueue grants the lock to the first waiters that can have it, while the budget lasts. What is left stays pending.
// If an event that comes first is due at the lock, nothing is granted; inOrder: the caller has run such events.
func (e *engine) grantQueue(l *lock, inOrder bool) {
	if l.head&flagWake == 0 {
		return
	}
	l.head &^= flagWake
	m := l.ext
	if m == nil {
		return
	}
	since := max(e.readAt, 1)
	if m.grantAt != 0 {
		since = min(since, m.grantAt)
	}
	m.grantAt = 0
	w := e.nextInLine(l)
	ready := w != nil && (inOrder || !e.isDueFirst(l))
	for ; w != nil; w = e.nextInLine(l) {
		if !ready || !e.hasBudget() {
			m.grantAt = since
			return
		}
		e.tryGrant(w)
	}
}

// wakeIfHoldEnded makes a grant pending at the lock that blocks a waiter, if holds there have ended and are not
// removed: their session may be renewed.
func (e *engine) wakeIfHoldEnded(w *waiter) {
	if l := e.findMutable(int(w.db), w.keys()[w.blocked]); e.hasEndedHold(l, e.readAt) {
		e.wake(l)
	}
}

// tryGrant grants a waiter whose turn it is at the lock that blocked it last. If another lock of the request blocks it,
// the waiter is awake there from now on. A waiter that lapsed is removed.
func (e *engine) tryGrant(w *waiter) {
	if err := e.whyLapsed(w); err != nil {
		e.dismiss(w, err)
		return
	}
	e.charge(1, 0)
	if e.loseEnded(e.find(int(w.db), w.keys()[w.blocked]), w.owner) {
		return // the loss woke the queue, or began a delay
	}
	q := w.request()
	for i := 1; i < len(q.Keys); i++ { // the lock at hand is not looked at again: it is free for w
		e.charge(0, 1)
		at := (int(w.blocked) + i) % len(q.Keys)
		e.loseEnded(e.find(q.DB, q.Keys[at]), q.Owner)
		if e.isGrantable(q.Keys[at], &q, w.order) {
			continue
		}
		moved := *w
		moved.blocked = uint8(at)
		e.replaceWaiter(w, &moved)
		e.wakeIfHoldEnded(&moved)
		return
	}
	if e.fences >= MaxFence {
		e.dismiss(w, ErrFull)
		return
	}
	e.removeQueue(w)
	fence := e.grant(&q, w.since)
	if w.deadline < e.now {
		e.wakeAll(w) // the end of the wait was due, and would have woken them
	}
	e.emitEndOfWait(w, fence, nil)
}

// issueFence returns a new fence, larger than all before. Requires: fences are left, see [MaxFence].
func (e *engine) issueFence() uint64 {
	e.fences++
	return e.fences
}

// grant gives all locks of a request to its owner under one new fence, and returns the fence. Requires: nothing blocks
// the request. since is the instant at which the owner began to wait.
func (e *engine) grant(r *Request, since int64) (fence uint64) {
	fence = e.issueFence()
	for _, key := range r.Keys {
		l := e.findOrMake(r.DB, key)
		h := e.holdFor(l, r)
		h.fence = fence
		if old := l.holdOf(r.Owner); old != nil {
			h.mode, h.count, h.since = old.mode, old.count, old.since
			if old.mode == Permits {
				h.extra = old.extra
			}
			e.replaceHold(l, old, h)
		} else {
			e.addHold(l, h)
		}
		told := e.holdEvent(Granted, h)
		told.WaitedMillis = e.now - since
		e.emit(told)
	}
	return fence
}

// holdFor returns the hold that a request asks for. The caller sets the fence.
func (e *engine) holdFor(l *lock, r *Request) *hold {
	h := &hold{
		key: l.key(), owner: r.Owner, since: e.now, origin: e.origin(r.Client.Origin), conn: r.Client.Conn,
		count: 1, mode: r.Mode, db: uint8(l.db()),
	}
	h.bind(e.now, r)
	if r.Note != "" || r.Call != "" || r.DelayMillis != 0 || r.Mode == Permits {
		h.extra = &extra{note: r.Note, call: r.Call, delay: r.DelayMillis, permits: int64(r.Permits)}
	}
	return h
}
