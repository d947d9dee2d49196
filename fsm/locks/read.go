package locks

import (
	"iter"
	"slices"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// The functions of this file read the table as it is stored: a hold that has ended and was not removed still counts. A
// caller that needs the exact state of a key settles the key first, or asks [Table.HasDue] whether that would change
// anything.

// cursorShift turns a hash into a cursor, its upper 53 bits, as in SCAN.
const cursorShift = 64 - 53

// allLocks yields the live locks in their order, and then the flushed ones.
func (s *databases) allLocks() iter.Seq[*lock] {
	return locksOf(slices.Concat(s.liveDatabases, s.flushedDatabases))
}

// locksOf yields the locks of databases.
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

// Has reports whether a key is a lock: an owner holds it or waits for it, or its delay runs.
func (s *databases) Has(db int, key string) bool { return s.peek(db, key) != nil }

// HasOrFlushed reports whether a key is a lock, or a flushed lock whose losses were not emitted yet.
func (s *databases) HasOrFlushed(db int, key string) bool {
	return s.search(new(lock), db, key, keyspace.Hash(key)) != nil
}

// LiveLocks counts the locks for which [Table.Has] is true.
func (s *databases) LiveLocks() (n int) {
	for _, d := range s.liveDatabases {
		n += d.locks.Len()
	}
	return n
}

// Holders counts the holds of a lock: the price of Break, and of Info.
func (s *databases) Holders(db int, key string) int {
	return s.search(new(lock), db, key, keyspace.Hash(key)).holders()
}

// HoldersAndWaiters counts the holds and waiters of a lock: the price of Usage.
func (s *store) HoldersAndWaiters(db int, key string) int {
	l := s.peek(db, key)
	return l.holders() + l.waiters()
}

// Usage returns the bytes of a lock with its holds and waiters. A waiter for several locks counts at each.
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

// FenceOf returns the fence of the owner's hold at an instant, or 0 if there is no such hold.
func (s *store) FenceOf(db int, key, owner string, nowMillis int64) uint64 {
	l := s.peek(db, key)
	h := l.holdOf(owner)
	if h == nil || s.hasEnded(l, h, nowMillis) {
		return 0
	}
	return h.fence
}

// IsBlocked reports whether others' holds or waits would block a request at an instant. It reports false if the owner
// holds one of the locks or waits for it, or if something is due that may change the answer.
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

// LeaseLeftMillis returns the time left of the lease of a lock that ends last, or -1 if a hold has a session. ok: the
// lock is held.
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

// info describes a hold.
func (h *hold) info(now int64) Hold {
	shown := Hold{
		Owner: h.owner, Fence: h.fence, Mode: h.mode, Count: int64(h.count), Permits: h.permits(),
		Session: h.session(), LeftMillis: h.leftMillis(now), LeaseMillis: h.lease(), SinceMillis: h.since, Client: h.client(),
	}
	if h.extra != nil {
		shown.Note = h.extra.note
	}
	return shown
}

// info describes a waiter.
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

// summary describes a lock without its mode, holds and waits.
func (l *lock) summary(now int64) Info {
	shown := Info{DB: l.db(), Key: l.key(), Holders: l.holders(), Waiters: l.waiters(), Permits: l.permits()}
	if l.delayed() {
		shown.DelayLeftMillis = max(0, l.ext.delayEnd-now)
	}
	return shown
}

// describe returns what a query without a session shows of a lock.
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

// sliceOf returns a list of one item, or an empty list for nil.
func sliceOf[T any](item *T) []*T {
	if item == nil {
		return nil
	}
	return []*T{item}
}

// Info describes a lock, with at most so many of its holds and of its waits. Nil: there is no lock.
func (s *store) Info(db int, key string, nowMillis int64, most int) *Info {
	l := s.peek(db, key)
	if l == nil {
		return nil
	}
	shown := s.describe(l, &Query{Most: most}, nowMillis)
	return &shown
}

// IsFlushing reports whether losses of a flush were not emitted yet.
func (s *databases) IsFlushing() bool { return len(s.flushedDatabases) > 0 }
