package locks

import "cmp"

// Renew gives the owner's hold a new lease that starts now, and returns the fence of the hold. It returns 0 if the
// owner has no hold. If the hold has a session, Renew starts no lease: the lease belongs to the session.
func (t *Table) Renew(db int, key, owner string, leaseMillis int64) (fence uint64) {
	defer t.finishStep()
	l := t.settleKey(db, key)
	old := l.holdOf(owner)
	if old == nil {
		return 0
	}
	h := *old
	h.knownToOwner, h.lateEmitted = true, t.emitLate(l.key(), old, t.now)
	if old.session() == 0 && leaseMillis > 0 {
		h.bind(t.now, &Request{LeaseMillis: min(leaseMillis, Forever)})
	}
	t.replaceHold(l, old, &h)
	return old.fence
}

// Release decrements the count of the owner's hold, and removes the hold if the count becomes 0. If the argument all is
// true, Release removes the hold even if the count is more than 1. left is the new count, and ok reports whether the
// owner had a hold.
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
	t.emitTimedHold(Released, l.key(), h, t.now)
	t.emitLate(l.key(), h, t.now)
	t.removeHold(l, h)
}

// ReleaseAll removes the owner's holds of all the keys, whatever the counts of the holds. It returns the number of
// removed holds.
func (t *Table) ReleaseAll(db int, keys []string, owner string) (released int) {
	for _, key := range keys {
		if _, ok := t.Release(db, key, owner, true); ok {
			released++
		}
	}
	return released
}

// ReturnGrant releases the owner's hold, because the client had disconnected before the node could pass the grant to
// the client. It reports whether it released the hold. It does not release a hold with another fence or client. It also
// does not release a hold if the owner has repeated the request or renewed the hold since the grant.
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

// Downgrade turns the owner's exclusive hold into a shared hold, and returns the fence of the hold. It changes nothing
// if the hold is shared already. It returns the fence 0 if the owner has no hold, and [ErrMode] if the hold is a hold
// of permits.
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
	// The owner may also have a waiter for several locks that include this lock. If the mode of the waiter is not Shared,
	// the shared hold does not cover the waiter's request, and the wait ends.
	if w := t.waiterOf(l, owner); w != nil && w.mode != Shared {
		t.dismiss(w, cmp.Or(t.lapseError(w), ErrMode))
	}
	h := *old
	h.mode = Shared
	t.replaceHold(l, old, &h)
	t.emitHold(Renewed, l.key(), &h)
	t.wakeQueue(l)
	return h.fence, nil
}
