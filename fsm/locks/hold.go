package locks

// addHold adds a hold of an owner that has none.
func (t *Table) addHold(l *lock, h *hold) {
	t.holdCount++
	t.bytes += h.bytes()
	if s := h.session(); s != 0 {
		t.bySession.Set(h)
		bound := t.ownSession(s)
		bound.late = bound.late && bound.holds > 0
		bound.holds++
	}
	if l.hold == nil && l.more == nil {
		l.hold = h
		return
	}
	m := t.extensionOf(l)
	m.holders++
	m.permits += h.permits()
	m.sessionHolds += h.sessions()
	m.delays += h.delays()
	if m.holders == 1 {
		l.hold = h
		return
	}
	if l.hold != nil {
		t.enrol(l, l.hold)
		l.hold = nil
	}
	t.enrol(l, h)
}

// enrol adds a hold to the trees of locks with several.
func (t *Table) enrol(l *lock, h *hold) {
	m := member{l.id(), h}
	t.byOwner.Set(m)
	t.byFence.Set(m)
	if h.deadline != never {
		t.byEnd.Set(m)
	}
	t.bytes += memberBytes
}

func (t *Table) strike(l *lock, h *hold) {
	m := member{l.id(), h}
	t.byOwner.Delete(m)
	t.byFence.Delete(m)
	if h.deadline != never {
		t.byEnd.Delete(m)
	}
	t.bytes -= memberBytes
}

// removeHold removes a hold of the lock.
func (t *Table) removeHold(l *lock, h *hold) {
	t.holdCount--
	t.bytes -= h.bytes()
	if s := h.session(); s != 0 {
		t.bySession.Delete(h)
		t.ownSession(s).holds--
	}
	t.wake(l)
	if l.more == nil {
		l.hold = nil
		return
	}
	m := l.more
	m.holders--
	m.permits -= h.permits()
	m.sessionHolds -= h.sessions()
	m.delays -= h.delays()
	if l.hold != nil {
		l.hold = nil
		return
	}
	t.strike(l, h)
	if m.holders == 1 {
		last := t.lastHold(l)
		t.strike(l, last)
		l.hold = last
	}
}

// lastHold is the one hold that is left in the trees.
func (t *Table) lastHold(l *lock) *hold {
	m, _ := seek(t.byFence, member{l.id(), firstFence})
	return m.hold
}

// replaceHold puts a changed copy of a hold in its place.
func (t *Table) replaceHold(l *lock, old, h *hold) {
	woken := l.head & flagWake
	if l.hold != nil && old.session() == h.session() && (h.session() == 0 || old.fence == h.fence) {
		// The common case: a lease anew.
		t.bytes += h.bytes() - old.bytes()
		if h.session() != 0 {
			t.bySession.Set(h)
		}
		if l.more != nil {
			l.more.permits += h.permits() - old.permits()
			l.more.delays += h.delays() - old.delays()
		}
		l.hold = h
		return
	}
	t.removeHold(l, old)
	t.addHold(l, h)
	l.head = l.head&^flagWake | woken
}

// about is an effect on a hold.
func (t *Table) about(kind EffectKind, h *hold) Effect {
	e := Effect{
		Kind: kind, DB: int(h.db), Key: h.key, Owner: h.owner, Fence: h.fence, Session: h.session(),
		Client: h.client(), LeaseMillis: h.lease(),
	}
	if e.Session != 0 {
		e.Attached = t.clientOf(e.Session)
	}
	return e
}

// aboutEnd is an effect on a hold that ends at an instant.
func (t *Table) aboutEnd(kind EffectKind, h *hold, at int64) Effect {
	e := t.about(kind, h)
	e.HeldMillis = at - h.since
	if h.deadline != never {
		e.SinceRenewedMillis = min(e.LeaseMillis, at-(h.deadline-e.LeaseMillis))
	}
	return e
}
