package locks

import (
	"iter"
	"slices"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// The functions of this file read the table as it is stored: a hold counts until it is removed, even if it has ended. A
// caller that needs the exact state of a key must settle the key first, unless [Table.HasDue] is false for the key.

// cursorShift shifts a hash to a cursor of 53 bits, as SCAN uses.
const cursorShift = 64 - 53

// allLocks yields the locks of all databases: first the live locks, and then the flushed locks.
func (s *databases) allLocks() iter.Seq[*lock] {
	return locksOf(slices.Concat(s.liveDatabases, s.flushedDatabases))
}

// locksOf yields the locks of some databases, one database after the other.
func locksOf(databases []*database) iter.Seq[*lock] {
	return func(yield func(l *lock) bool) {
		more := true
		for i := 0; more && i < len(databases); i++ {
			databases[i].locks.Scan(func(l *lock) bool {
				more = yield(l)
				return more
			})
		}
	}
}

// Has reports whether the live database has a lock at a key.
func (s *databases) Has(db int, key string) bool { return s.peek(db, key) != nil }

// HasOrFlushed reports whether the live database or a flushed database has a lock at a key.
func (s *databases) HasOrFlushed(db int, key string) bool {
	return s.search(new(lock), db, key, keyspace.Hash(key)) != nil
}

// LiveLocks counts the locks of all live databases.
func (s *databases) LiveLocks() (n int) {
	for _, d := range s.liveDatabases {
		n += d.locks.Len()
	}
	return n
}

// Holders counts the holds of a live or flushed lock. Break and Info take time in proportion to this count.
func (s *databases) Holders(db int, key string) int {
	return s.search(new(lock), db, key, keyspace.Hash(key)).holders()
}

// HoldersAndWaiters counts the holds and waiters of a live lock. Usage takes time in proportion to this count.
func (s *store) HoldersAndWaiters(db int, key string) int {
	l := s.peek(db, key)
	return l.holders() + l.waiters()
}

// Usage returns the counted memory of a lock with its holds and waiters, in bytes. A waiter for several locks counts in
// full at each of them.
func (s *store) Usage(db int, key string) (bytes int64) {
	l := s.peek(db, key)
	if l == nil {
		return 0
	}
	bytes = l.bytes()
	if l.ext != nil {
		bytes += extensionBytes
	}
	for _, h := range l.holds() {
		if bytes += h.bytes(); l.hold == nil {
			bytes += memberBytes
		}
	}
	for w := range s.waitersAt(l) {
		bytes += w.bytes()
	}
	return bytes
}

// FenceOf returns the fence of the owner's hold, or 0 if the owner has no hold, or if the hold has ended at nowMillis.
func (s *store) FenceOf(db int, key, owner string, nowMillis int64) uint64 {
	l := s.peek(db, key)
	h := l.holdOf(owner)
	if h == nil || s.hasEnded(l, h, nowMillis) {
		return 0
	}
	return h.fence
}

// IsBlocked reports whether holds or waits of other owners block a request at nowMillis. It reports false if the owner
// holds one of the locks or waits for it, and also if a due event of a lock may change the answer.
func (s *store) IsBlocked(r *Request, nowMillis int64) (blocked bool) {
	for _, key := range r.Keys {
		l := s.peek(r.DB, key)
		if l == nil {
			continue
		}
		h := l.anyHold()
		switch {
		case s.dueOf(l) < nowMillis, h != nil && s.hasEnded(l, h, nowMillis),
			l.holdOf(r.Owner) != nil, s.queues.waiterOf(new(waiter), l, r.Owner) != nil:
			return false
		case l.delayed(), !isCompatible(l, r), s.isBlockedByQueue(l, r, noOrder):
			blocked = true
		}
	}
	return blocked
}

// LeaseLeftMillis returns the time until the last lease of a lock ends, or -1 if one of the holds has a session. ok
// reports whether the lock is held.
func (s *store) LeaseLeftMillis(db int, key string, nowMillis int64) (millis int64, ok bool) {
	l := s.peek(db, key)
	switch {
	case l.holders() == 0:
		return 0, false
	case l.hold != nil:
		return l.hold.leftMillis(nowMillis), true
	case l.ext.sessionHolds > 0:
		return -1, true
	}
	ends := l.ext.holds.byEnd
	return ends[len(ends)-1].leftMillis(nowMillis), true
}

// info returns the description of a hold at the time now.
func (h *hold) info(now int64) Hold {
	return Hold{
		Owner: h.owner, Fence: h.fence, Mode: h.mode, Count: int64(h.count), Permits: h.permits(),
		Session: h.session(), LeftMillis: h.leftMillis(now), LeaseMillis: h.lease(), SinceMillis: h.since, Note: h.note(),
		Client: h.client(),
	}
}

// info returns the description of a waiter at the time now.
func (w *waiter) info(now int64) Wait {
	shown := Wait{
		Owner: w.owner, Mode: w.mode, Limit: int64(w.limit), Permits: int64(w.permits), Session: w.session,
		SinceMillis: w.since, LeftMillis: -1, Absent: w.absent, Notify: w.notify, Keys: len(w.keys()),
		Note: w.note, Client: w.client(),
	}
	if w.deadline != noDeadline {
		shown.LeftMillis = max(0, w.deadline-now)
	}
	return shown
}

// summary returns the description of a lock, without its mode, holds and waits.
func (l *lock) summary(now int64) Info {
	shown := Info{DB: l.db(), Key: l.key(), Holders: l.holders(), Waiters: l.waiters(), Permits: l.permits()}
	if l.delayed() {
		shown.DelayLeftMillis = max(0, l.ext.delayEnd-now)
	}
	return shown
}

// describe returns the description of a lock, with the holds and waits that a query selects. It ignores the session of
// the query.
func (s *store) describe(l *lock, q *Query, now int64) Info {
	shown, holds, waits := l.summary(now), l.holds(), s.waitersAt(l)
	if len(holds) > 0 {
		shown.Mode = holds[0].mode
	}
	if q.ByOwner {
		holds = sliceOf(l.holdOf(q.Owner))
		waits = slices.Values(sliceOf(s.queues.waiterOf(new(waiter), l, q.Owner)))
	}
	if !q.Waiting || q.Held {
		for _, h := range holds[:min(q.Most, len(holds))] {
			shown.Holds = append(shown.Holds, h.info(now))
		}
	}
	if q.Held && !q.Waiting || q.Most < 1 {
		return shown
	}
	for w := range waits {
		if shown.Waits = append(shown.Waits, w.info(now)); len(shown.Waits) == q.Most {
			break
		}
	}
	return shown
}

// sliceOf returns a slice with the item, or an empty slice if the item is nil.
func sliceOf[T any](item *T) []*T {
	if item == nil {
		return nil
	}
	return []*T{item}
}

// Info describes a lock, with at most count of its holds and at most count of its waits. It returns nil if the live
// database has no lock at the key.
func (s *store) Info(db int, key string, nowMillis int64, count int) *Info {
	l := s.peek(db, key)
	if l == nil {
		return nil
	}
	shown := s.describe(l, &Query{Most: count}, nowMillis)
	return &shown
}

// IsFlushing reports whether the table has flushed databases, whose holds are not all emitted as lost yet.
func (s *databases) IsFlushing() bool { return len(s.flushedDatabases) > 0 }
