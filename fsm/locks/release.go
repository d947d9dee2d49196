package locks

import "cmp"

// Renew restarts the lease of the owner's hold, and returns its fence. It returns 0 if the owner has no hold. A hold of
// a session stays as it is, because the session has the lease.
func (t *Table) Renew(db int, key, owner string, leaseMillis int64) (fence uint64) {
	defer t.finishStep()
	l := t.settleKey(db, key)
	old := l.holdOf(owner)
	if old == nil {
		return 0
	}
	h := *old
	h.knownToOwner, h.lateEmitted = true, t.emitLate(old, t.now)
	if old.session() == 0 && leaseMillis > 0 {
		h.bind(t.now, &Request{LeaseMillis: min(leaseMillis, Forever)})
	}
	t.replaceHold(l, old, &h)
	return old.fence
}

// Release decrements the count of the owner's hold, and removes the hold if the count is 0 or all is true. It returns
// the count that is left, and whether the owner had a hold.
func (t *Table) Release(db int, key, owner string, all bool) (left int64, ok bool) {
	defer t.finishStep()
	l := t.settleKey(db, key)
	old := l.holdOf(owner)
	if old == nil {
		return 0, false
	}
	if old.count > 1 && !all {
		h := *old
		h.count--
		t.replaceHold(l, old, &h)
		return int64(h.count), true
	}
	t.release(l, old)
	return 0, true
}

func (t *Table) release(l *lock, h *hold) {
	t.emit(t.timedHoldEvent(Released, h, t.now))
	t.emitLate(h, t.now)
	t.removeHold(l, h)
}

// ReleaseAll removes the owner's holds of the keys, whatever their counts, and returns the number of holds.
func (t *Table) ReleaseAll(db int, keys []string, owner string) (released int) {
	for _, key := range keys {
		if _, ok := t.Release(db, key, owner, true); ok {
			released++
		}
	}
	return released
}

// ReturnGrant releases a hold whose client had disconnected before it learned of the grant. It reports whether it
// released the hold. A hold with another fence or client stays, and so does a hold that its owner has renewed since the
// grant.
func (t *Table) ReturnGrant(db int, key, owner string, fence uint64, client Client) bool {
	defer t.finishStep()
	l := t.settleKey(db, key)
	h := l.holdOf(owner)
	if h == nil || h.fence != fence || h.client() != client || h.knownToOwner {
		return false
	}
	t.release(l, h)
	return true
}

// Downgrade makes the owner's exclusive hold a shared one, and returns its fence. It returns 0 if the owner has no
// hold, and [ErrMode] for a hold of permits. A shared hold stays as it is.
func (t *Table) Downgrade(db int, key, owner string) (fence uint64, err error) {
	defer t.finishStep()
	l := t.settleKey(db, key)
	old := l.holdOf(owner)
	switch {
	case old == nil:
		return 0, nil
	case old.mode == Shared:
		return old.fence, nil
	case old.mode == Permits:
		return 0, ErrMode
	}
	// The owner may also wait for this lock, in a request for several locks. The shared hold will not cover that
	// request if it has another mode.
	if w := t.waiterOf(l, owner); w != nil && w.mode != Shared {
		t.dismiss(w, cmp.Or(t.lapseError(w), ErrMode))
	}
	h := *old
	h.mode = Shared
	t.replaceHold(l, old, &h)
	t.emit(t.holdEvent(Renewed, &h))
	t.wakeQueue(l)
	return h.fence, nil
}
