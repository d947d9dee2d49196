package locks

import "cmp"

// Renew renews the lease of a hold, and returns the fence, or 0 if the owner does not hold the lock. A session's hold
// keeps its session.
func (t *Table) Renew(db int, key, owner string, leaseMillis int64) (fence uint64) {
	defer t.finish()
	l := t.settleKey(db, key)
	old := l.holdOf(owner)
	if old == nil {
		return 0
	}
	h := *old
	h.asked, h.late = true, t.emitLate(old, t.now)
	if old.session() == 0 && leaseMillis > 0 {
		h.bind(t.now, &Request{LeaseMillis: min(leaseMillis, Forever)})
	}
	t.replaceHold(l, old, &h)
	return old.fence
}

// Release releases a hold once, or altogether if all. left is the count that remains. ok: the owner held the lock.
func (t *Table) Release(db int, key, owner string, all bool) (left int64, ok bool) {
	defer t.finish()
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
	t.emit(t.holdEndEvent(Released, h, t.now))
	t.emitLate(h, t.now)
	t.removeHold(l, h)
}

// ReleaseAll releases the owner's holds of keys, whatever their counts, and returns how many there were.
func (t *Table) ReleaseAll(db int, keys []string, owner string) (released int) {
	for _, key := range keys {
		if _, ok := t.Release(db, key, owner, true); ok {
			released++
		}
	}
	return released
}

// ReturnGrant releases a hold whose client was gone when the grant arrived. It does nothing if the hold has another
// fence or client, or if the owner has asked for the lock again or renewed the hold since, and so knows of the hold.
func (t *Table) ReturnGrant(db int, key, owner string, fence uint64, client Client) bool {
	defer t.finish()
	l := t.settleKey(db, key)
	h := l.holdOf(owner)
	if h == nil || h.fence != fence || h.client() != client || h.asked {
		return false
	}
	t.release(l, h)
	return true
}

// Downgrade makes an exclusive hold a shared one, and returns the fence, or 0 if the owner does not hold the lock. A
// shared hold stays as it is, a hold of permits is ErrMode.
func (t *Table) Downgrade(db int, key, owner string) (fence uint64, err error) {
	defer t.finish()
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
	if w := t.waiterOf(l, owner); w != nil && w.mode != Shared {
		t.dismiss(w, cmp.Or(t.whyLapsed(w), ErrMode)) // it waits for several locks; a shared hold does not cover its mode
	}
	h := *old
	h.mode = Shared
	t.replaceHold(l, old, &h)
	t.wake(l)
	return h.fence, nil
}
