package locks

// isCompatible reports whether the holds of a lock leave room for a request.
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

// covers reports whether a hold gives its owner all that a request asks for.
func covers(h *hold, r *Request) bool {
	return h.mode == Exclusive || h.mode == r.Mode && (h.mode != Permits || int64(r.Permits) <= h.permits())
}

// isGrantable reports whether a request may have the lock of a key now. order is the request's order in the queue, or
// noOrder.
func (e *engine) isGrantable(key string, r *Request, order uint64) bool {
	l := e.find(r.DB, key)
	switch h := l.holdOf(r.Owner); {
	case l == nil:
		return true
	case h != nil:
		return covers(h, r) && !e.hasEnded(l, h, e.now) // whatever else is due
	case e.isDueFirst(l):
		return false // that event wakes the queue
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

// grantQueue grants a woken lock to the waiters that can have it, in their order, while the budget lasts. The rest
// stays pending. Nothing is granted before a due event of the lock that comes first, unless inOrder: the caller has run
// such events.
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

// wakeIfHoldEnded makes a grant pending at the lock that blocks a waiter, if a hold there has ended and was not
// removed. A renewal of the hold's session would undo that end.
func (e *engine) wakeIfHoldEnded(w *waiter) {
	if l := e.findMutable(int(w.db), w.keys()[w.blocked]); e.hasEndedHold(l, e.readAt) {
		e.wake(l)
	}
}

// tryGrant grants a waiter whose turn it is at the lock that blocked it last. If another lock of the request blocks it,
// the waiter becomes awake there. A lapsed waiter is removed.
func (e *engine) tryGrant(w *waiter) {
	if err := e.whyLapsed(w); err != nil {
		e.dismiss(w, err)
		return
	}
	e.charge(1, 0)
	if e.loseEnded(e.find(int(w.db), w.keys()[w.blocked]), w.owner) {
		return // the loss woke the queue, or started a delay
	}
	q := w.request()
	for i := 1; i < len(q.Keys); i++ { // the lock that blocked w is free for w now
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
		e.wakeAll(w) // as the end of the wait, which was due, would have
	}
	e.emitEndOfWait(w, fence, nil)
}

// issueFence returns a new fence, larger than all before. Requires: the last fence is below [MaxFence].
func (e *engine) issueFence() uint64 {
	e.fences++
	return e.fences
}

// grant gives all locks of a request to its owner, under one new fence, and returns the fence. since is the instant at
// which the owner began to wait. Requires: nothing blocks the request.
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
		told.Mode, told.WaitedMillis = h.mode, e.now-since
		e.emit(told)
	}
	return fence
}

// holdFor returns the hold that a request asks for, without a fence.
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
