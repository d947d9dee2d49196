package locks

// joins reports whether a request is compatible with the holds of a lock.
func joins(l *lock, r *Request, first *hold) bool {
	holders := l.holders()
	switch {
	case holders == 0:
		return true
	case first.mode != r.Mode || holders >= MaxHolders:
		return false
	case r.Mode == Shared:
		return true
	case r.Mode == Permits:
		held := first.permits()
		if l.more != nil {
			held = l.more.permits
		}
		return held+int64(r.Permits) <= int64(r.Limit)
	default:
		return false
	}
}

// anyHold is some hold of the lock: all have one mode.
func (t *Table) anyHold(l *lock) *hold {
	if l.hold != nil || l.holders() == 0 {
		return l.hold
	}
	return t.firstHold(l)
}

// covers reports whether a hold is what its owner asks for.
func covers(h *hold, r *Request) bool {
	return h.mode == Exclusive || h.mode == r.Mode && (h.mode != Permits || int64(r.Permits) <= h.permits())
}

// unobstructed reports whether no waiter before order in the queue is in the way of a request.
func (t *Table) unobstructed(l *lock, r *Request, order uint64) bool {
	if l.more == nil {
		return true
	}
	if order > t.first(l, awakeOther) || order > t.first(l, asleepOther) || order > t.first(l, awakeShared) {
		return false
	}
	return r.Mode == Shared || order <= t.first(l, asleepShared)
}

// grantable reports whether a lock does not block a request at a place of its queue.
func (t *Table) grantable(key string, r *Request, order uint64) bool {
	l := t.find(r.DB, key)
	if l == nil {
		return true
	}
	h := t.holdOf(l, r.Owner)
	if t.dueFirst(l) || h != nil && t.over(l, h, t.as) {
		return false // whatever is due there wakes the queue: see step
	}
	if h != nil {
		return covers(h, r)
	}
	return !l.delayed() && !t.delayPending(l) && joins(l, r, t.anyHold(l)) && t.unobstructed(l, r, order)
}

// blockedAt returns the index of the first key that blocks a request, searching circularly from the index from. ok: a
// key blocks the request.
func (t *Table) blockedAt(r *Request, order uint64, from int) (index int, ok bool) {
	for i := range r.Keys {
		t.steps--
		if i = (from + i) % len(r.Keys); !t.grantable(r.Keys[i], r, order) {
			return i, true
		}
	}
	return 0, false
}

// candidate is the waiter that this lock does not block, and that no other lock is known to block. Holds that were lost
// together are worked off before: the last of them may bring a delay.
func (t *Table) candidate(l *lock) *waiter {
	m := l.more
	if m == nil || m.delay != 0 || t.lostOf(l) != nil || m.ranks[awakeShared]+m.ranks[awakeOther] == 0 ||
		t.delayPending(l) {
		return nil
	}
	first := t.anyHold(l)
	if first != nil && first.mode == Exclusive {
		return nil
	}
	for r := awakeShared; r <= awakeOther; r++ {
		if p, ok := t.firstPlace(l, r); ok {
			q := p.waiter.request()
			if t.unobstructed(l, &q, p.order()) && joins(l, &q, first) {
				return p.waiter
			}
		}
	}
	return nil
}

// pump grants the lock to those in the queue who can have it, while there are steps.
func (t *Table) pump(l *lock) {
	if l.head&flagWake == 0 {
		return
	}
	l.head &^= flagWake
	if l.more == nil {
		return
	}
	for {
		w := t.candidate(l)
		l.more.unfinished = 0
		switch {
		case w == nil:
			return
		case t.steps <= 0:
			l.more.unfinished = max(t.as, 1)
			return
		}
		t.try(w)
	}
}

// try serves a waiter who is free to go at the lock that blocked it last: it is granted, blocked elsewhere,
// or gone.
func (t *Table) try(w *waiter) {
	t.pay()
	if err := t.lapsed(w); err != nil {
		t.dismiss(w, err)
		return
	}
	if l := t.take(int(w.db), w.keys()[w.blocked]); t.loseOver(l, w.owner) {
		return // perhaps with a delay
	}
	q := w.request()
	for i := 1; i < len(q.Keys); i++ { // the lock at hand is not looked at again: it is free for w
		t.steps--
		at := (int(w.blocked) + i) % len(q.Keys)
		if t.grantable(q.Keys[at], &q, w.order) {
			continue
		}
		moved := *w
		moved.blocked = uint8(at)
		t.relined(w, &moved)
		return
	}
	if t.fences >= MaxFence {
		t.dismiss(w, ErrFull)
		return
	}
	t.unline(w)
	fence := t.grant(&q, w.since)
	t.emitEndOfWait(w, fence, nil)
}

// grant gives all locks of a request to its owner, and returns the fence. Requires: nothing blocks it.
// since is when the owner began to wait.
func (t *Table) grant(r *Request, since int64) (fence uint64) {
	t.fences++
	fence = t.fences
	for _, key := range r.Keys {
		l := t.takeNew(r.DB, key)
		h := t.newHold(l, r)
		h.fence = fence
		if old := t.holdOf(l, r.Owner); old != nil {
			h.mode, h.count, h.since = old.mode, old.count, old.since
			if old.mode == Permits {
				h.extra = old.extra
			}
			t.replaceHold(l, old, h)
		} else {
			t.addHold(l, h)
		}
		e := t.about(Granted, h)
		e.WaitedMillis = t.now - since
		t.emit(e)
	}
	return fence
}

// newHold is the hold that a request asks for, without a fence.
func (t *Table) newHold(l *lock, r *Request) *hold {
	h := &hold{
		key: l.key(), owner: r.Owner, since: t.now, origin: t.origin(r.Client.Origin), conn: r.Client.Conn,
		count: 1, mode: r.Mode, db: uint8(l.db()),
	}
	h.bind(t.now, r)
	if r.Note != "" || r.Call != "" || r.DelayMillis != 0 || r.Mode == Permits {
		h.extra = &extra{note: r.Note, call: r.Call, delay: r.DelayMillis, permits: int64(r.Permits)}
	}
	return h
}

// bind binds the hold to what a request says.
func (h *hold) bind(now int64, r *Request) {
	if r.Session != 0 {
		h.bound, h.deadline = r.Session, never
	} else {
		h.bound, h.deadline = uint64(r.LeaseMillis), saturated(now, r.LeaseMillis)
	}
}
