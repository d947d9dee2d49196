package locks

import (
	"iter"
	"slices"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// Most functions of this file read the table as it is stored: they include holds that have ended and are not removed
// yet. FenceOf and IsBlocked take the ends of holds into account. A caller that needs the exact state of a key must
// settle the key first. If [Table.HasDue] reports false for the key, the stored state is exact.

// cursorShift is the number of low bits of a hash that a cursor leaves out. A cursor has 53 bits, as in SCAN.
const cursorShift = 64 - 53

// allLocks yields the locks of all databases: first the live locks, and then the flushed locks.
func (s *databases) allLocks() iter.Seq[*lock] {
	return locksOf(slices.Concat(s.liveDatabases, s.flushedDatabases))
}

// locksOf yields the locks of each of the databases, one database after the other.
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

// Holders counts the holds of a live or flushed lock. Break takes time in proportion to this count.
func (s *databases) Holders(db int, key string) int {
	return s.search(new(lock), db, key, keyspace.Hash(key)).holders()
}

// HoldersAndWaiters counts the holds and waiters of a live lock. Usage takes time in proportion to this count.
func (s *store) HoldersAndWaiters(db int, key string) int {
	l := s.peek(db, key)
	return l.holders() + l.waiters()
}

// Usage returns the estimated memory of a lock with its holds and waiters, in bytes. If a waiter waits for several
// locks, the usage of each of these locks includes the whole waiter.
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

// FenceOf returns the fence of the owner's hold. It returns 0 if the owner has no hold, or if the hold has ended at
// nowMillis.
func (s *store) FenceOf(db int, key, owner string, nowMillis int64) uint64 {
	l := s.peek(db, key)
	h := l.holdOf(owner)
	if h == nil || s.hasEnded(l, h, nowMillis) {
		return 0
	}
	return h.fence
}

// IsBlocked reports whether a new request of the owner would be blocked at nowMillis, by holds or waiters of other
// owners or by a delay. It also reports false in two uncertain cases: the owner already holds or waits for one of the
// locks, or an event of one of the locks is due.
func (s *store) IsBlocked(r *Request, nowMillis int64) (blocked bool) {
	for _, key := range r.Keys {
		l := s.peek(r.DB, key)
		if l == nil {
			continue
		}
		h := l.anyHold()
		switch {
		case s.firstDeadlineOf(l) < nowMillis, h != nil && s.hasEnded(l, h, nowMillis),
			l.holdOf(r.Owner) != nil, s.queues.waiterOf(new(waiter), l, r.Owner) != nil:
			return false
		case l.delayed(), !isCompatible(l, r), s.isBlockedByQueue(l, r, noOrder):
			blocked = true
		}
	}
	return blocked
}

// LeaseLeftMillis returns the time in milliseconds until the leases of all holds of a lock have ended. It returns -1 if
// one of the holds has a session. ok reports whether the lock has holds.
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

func (h *hold) info(now int64) Hold {
	return Hold{
		Owner: h.owner, Fence: h.fence, Mode: h.mode, Count: int64(h.count), Permits: h.permits(),
		Session: h.session(), LeftMillis: h.leftMillis(now), LeaseMillis: h.lease(), SinceMillis: h.since, Note: h.note,
		Client: h.client(),
	}
}

func (w *waiter) info(now int64) Wait {
	shown := Wait{
		Owner: w.owner, Mode: w.mode, Limit: int64(w.limit), Permits: int64(w.permits), Session: w.session(),
		SinceMillis: w.since, LeftMillis: -1, Absent: w.absent, Notify: w.notify, Keys: len(w.keys()),
		Note: w.note, Client: w.client(),
	}
	if w.deadline != noDeadline {
		shown.LeftMillis = max(0, w.deadline-now)
	}
	return shown
}

// summary describes a lock at the given time. It does not set Mode, Holds and Waits.
func (l *lock) summary(now int64) Info {
	shown := Info{DB: l.db(), Key: l.key(), Holders: l.holders(), Waiters: l.waiters(), Permits: l.permits()}
	if l.delayed() {
		shown.DelayLeftMillis = max(0, l.ext.delayEnd-now)
	}
	return shown
}

// describe describes a lock at the given time, with the holds and waits that a query selects. Of the query, describe
// reads ByOwner, Owner, Held, Waiting and Most.
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
		for _, h := range holds[:min(q.MaxRows, len(holds))] {
			shown.Holds = append(shown.Holds, h.info(now))
		}
	}
	if q.Held && !q.Waiting || q.MaxRows < 1 {
		return shown
	}
	for w := range waits {
		if shown.Waits = append(shown.Waits, w.info(now)); len(shown.Waits) == q.MaxRows {
			break
		}
	}
	return shown
}

// sliceOf returns a slice that has only the item, or an empty slice if the item is nil.
func sliceOf[T any](item *T) []*T {
	if item == nil {
		return nil
	}
	return []*T{item}
}

// Info describes a lock. The parameter count bounds the number of described holds, and also the number of described
// waits. Info returns nil if the live database has no lock at the key.
func (s *store) Info(db int, key string, nowMillis int64, count int) *Info {
	l := s.peek(db, key)
	if l == nil {
		return nil
	}
	shown := s.describe(l, &Query{MaxRows: count}, nowMillis)
	return &shown
}

// IsFlushing reports whether the table still has a flushed database. Such a database may have holds that are not
// emitted as lost yet, and queues that are not moved yet.
func (s *databases) IsFlushing() bool { return len(s.flushedDatabases) > 0 }
