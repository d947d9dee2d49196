package locks

import (
	"iter"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// store has the data of a table, and the state of the current call.
type store struct {
	databases
	queues
	sessions

	now int64 // the cluster time in milliseconds
	// readAt is the time at which locks are evaluated. While an event runs, readAt is one millisecond after the deadline
	// of the event, but not later than now. Otherwise readAt is now.
	readAt int64
	budget
	// generation is the number of copies of the table so far. A copy may share the record of a lock or session if the
	// generation of the record is lower. A method that changes such a lock or session stores a new record first: see
	// mutable and mutableSession.
	generation           uint64
	fences               uint64 // the last fence that was issued
	orders               uint64 // the last order that was issued to a waiter
	lockIDs              uint64 // the last serial number that was issued to a lock; not part of a snapshot
	bytes                int64  // the estimated memory of the table
	lockCount, holdCount int

	origins      []*protocol.Incarnation // see internOrigin
	plainOptions *options                // see optionsOf
	// touchedLocks has the locks that the current call may have changed. wokenLocks has the locks that may be granted to a
	// waiter: see wakeQueue. finishStep empties both lists.
	touchedLocks, wokenLocks []*lock
	events                   []Event
	lastLookup               lastLookup
	probe                    *probe // nil until the first use
}

func newTree[T any](less func(a, b T) bool) *btree.BTreeG[T] {
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

// copy returns an independent copy of the store, without events, in constant time.
func (s *store) copy() store {
	s.generation++
	c := *s
	c.databases, c.queues = s.databases.copy(), s.queues.copy()
	c.sessions = s.sessions.copy()
	c.origins = slices.Clone(s.origins)
	c.touchedLocks, c.wokenLocks, c.events, c.lastLookup, c.probe = nil, nil, nil, lastLookup{}, nil
	return c
}

// ascend yields the items of a tree that are not less than pivot, in the order of the tree.
func ascend[T any](tree *btree.BTreeG[T], pivot T) iter.Seq[T] {
	return func(yield func(item T) bool) { tree.Ascend(pivot, yield) }
}

// seek returns the first item of a tree that is not less than pivot. ok reports whether there is such an item.
func seek[T any](tree *btree.BTreeG[T], pivot T) (found T, ok bool) {
	tree.Ascend(pivot, func(item T) bool {
		found, ok = item, true
		return false
	})
	return found, ok
}

// addSaturating returns the sum of a and b, or Forever if the sum is larger.
func addSaturating(a, b int64) int64 {
	if a > 0 && b > Forever-a {
		return Forever
	}
	return a + b
}

// internOrigin returns a record of an incarnation. All holds, waiters and sessions of the incarnation can share the
// record. For each node, the store keeps only the record of the incarnation that was interned last.
func (s *store) internOrigin(o protocol.Incarnation) *protocol.Incarnation {
	for i, known := range s.origins {
		if *known == o {
			return known
		}
		if known.Node == o.Node {
			fresh := &protocol.Incarnation{Node: known.Node, Epoch: o.Epoch}
			s.origins = slices.Clone(s.origins)
			s.origins[i] = fresh
			return fresh
		}
	}
	if o == (protocol.Incarnation{}) {
		return &noOrigin
	}
	fresh := &protocol.Incarnation{Node: strings.Clone(o.Node), Epoch: o.Epoch}
	s.origins = append(slices.Clip(s.origins), fresh)
	return fresh
}

var noOrigin protocol.Incarnation

// lastLookup has the arguments and the result of the last call of find. Most calls find one lock several times, and
// only the first find searches. finishStep clears lastLookup.
type lastLookup struct {
	known bool
	db    int
	key   string
	hash  uint64
	lock  *lock // nil if the key has no lock
}

// probe has memory for the keys of searches. Calls that change the table run one at a time, so they use the probe of
// the store. Calls that only read may run in parallel, so each makes a probe of its own.
type probe struct {
	lock   lock
	waiter waiter
	hold   sessionHold
}

func (s *store) probes() *probe {
	if s.probe == nil {
		s.probe = new(probe)
	}
	return s.probe
}

// find returns the live or flushed lock of a key, or nil. Calls that only read must not use find, because it changes
// lastLookup.
func (s *store) find(db int, key string) *lock {
	if n := &s.lastLookup; !n.known || n.db != db || n.key != key {
		hash := keyspace.Hash(key)
		*n = lastLookup{true, db, key, hash, s.search(&s.probes().lock, db, key, hash)}
	}
	return s.lastLookup.lock
}

// waiterOf returns the owner's waiter in the queue of a lock, or nil. Calls that only read must not use waiterOf,
// because it uses the probe of the store.
func (s *store) waiterOf(l *lock, owner string) *waiter {
	return s.queues.waiterOf(&s.probes().waiter, l, owner)
}

// findMutable returns a mutable record of the lock of a key, or nil if there is no such lock.
func (s *store) findMutable(db int, key string) *lock {
	l := s.find(db, key)
	if l == nil {
		return nil
	}
	return s.mutable(l)
}

// findOrMake returns a mutable record of the lock of a key. It makes the lock if there is none.
func (s *store) findOrMake(db int, key string) *lock {
	if l := s.findMutable(db, key); l != nil {
		return l
	}
	s.lockIDs++
	s.lockCount++
	l := &lock{
		text: keyspace.NewLockText(key), hash: s.lastLookup.hash, deadline: noDeadline, generation: s.generation,
		idAndFlags: s.lockIDs<<16 | uint64(db)<<8 | flagTouched,
	}
	s.makeDatabase(db).set(l)
	s.lastLookup.lock = l
	s.bytes += l.bytes()
	s.touchedLocks = append(s.touchedLocks, l)
	return l
}

// mutable returns a mutable record of lock l: a record that no copy of the table shares. It returns l if no copy can
// share l. Otherwise it copies l, stores the new record in the table in place of l, and returns the new record. mutable
// also adds the lock to touchedLocks.
func (s *store) mutable(l *lock) *lock {
	if l.generation != s.generation {
		home := s.databaseOf(l)
		c := *l
		c.generation = s.generation
		if l.ext != nil {
			more := *l.ext
			more.holds = more.holds.clone()
			c.ext = &more
		}
		if s.lastLookup.lock == l {
			s.lastLookup.lock = &c
		}
		l = &c
		home.set(l)
	}
	if l.idAndFlags&flagTouched == 0 {
		l.idAndFlags |= flagTouched
		s.touchedLocks = append(s.touchedLocks, l)
	}
	return l
}

// wakeQueue adds a lock to wokenLocks. finishStep, or an earlier call of grantQueue, then grants the lock to the
// waiters that are next in line.
func (s *store) wakeQueue(l *lock) {
	if l.idAndFlags&flagWoken == 0 {
		l.idAndFlags |= flagWoken
		s.wokenLocks = append(s.wokenLocks, l)
	}
}

// extend returns the extension of a lock. It makes the extension if there is none.
func (s *store) extend(l *lock) *extension {
	if l.ext == nil {
		l.ext = &extension{}
		if l.hold != nil {
			l.ext.permits, l.ext.sessionHolds = l.hold.permits(), l.hold.sessionCount()
		}
		s.bytes += extensionBytes
	}
	return l.ext
}

// mutableSession returns a mutable record of a session: a record that no copy of the table shares.
//
// Requires: the session exists.
func (s *store) mutableSession(id uint64) *session {
	found := s.session(id)
	if found.generation != s.generation {
		c := *found
		c.generation = s.generation
		found = &c
		s.sessionsByID.Set(found)
	}
	return found
}

// addHold adds a hold to a lock.
//
// Requires: the owner has no hold of the lock.
func (s *store) addHold(l *lock, h *hold) {
	s.holdCount++
	s.bytes += h.bytes()
	if id := h.session(); id != 0 {
		h = s.indexHold(l, h)
		sess := s.mutableSession(id)
		sess.lateEmitted = sess.lateEmitted && sess.holds > 0
		sess.holds++
	}
	if l.hold == nil && l.ext == nil {
		l.hold = h
		return
	}
	m := s.extend(l)
	m.permits += h.permits()
	m.sessionHolds += h.sessionCount()
	switch {
	case l.hold != nil:
		m.holds = &holdSet{}
		m.holds.change(l.hold, 1)
		m.holds.change(h, 1)
		l.hold = nil
		s.bytes += 2 * memberBytes
	case m.holds != nil:
		m.holds.change(h, 1)
		s.bytes += memberBytes
	default:
		l.hold = h
	}
}

// indexHold copies a hold of a session into a sessionHold, stores the sessionHold, and returns the copy of the hold.
func (s *store) indexHold(l *lock, h *hold) *hold {
	indexed := &sessionHold{*h, l.key()}
	s.holdsBySession.Set(indexed)
	return &indexed.hold
}

// removeHold removes a hold from a lock, and wakes the queue.
func (s *store) removeHold(l *lock, h *hold) {
	s.holdCount--
	s.bytes -= h.bytes()
	if id := h.session(); id != 0 {
		s.probes().hold = sessionHold{*h, l.key()}
		s.holdsBySession.Delete(&s.probe.hold)
		s.mutableSession(id).holds--
	}
	s.wakeQueue(l)
	if m := l.ext; m != nil {
		m.permits -= h.permits()
		m.sessionHolds -= h.sessionCount()
		if m.holds != nil {
			m.holds.change(h, -1)
			s.bytes -= memberBytes
			if len(m.holds.byFence) == 1 {
				l.hold, m.holds = m.holds.byFence[0], nil
				s.bytes -= memberBytes
			}
			return
		}
	}
	l.hold = nil
}

// replaceHold replaces a hold (old) by a changed copy (h). It does not wake the queue.
func (s *store) replaceHold(l *lock, old, h *hold) {
	woken := l.idAndFlags & flagWoken
	if l.hold != nil && old.session() == h.session() && (h.session() == 0 || old.fence == h.fence) {
		// This is the common case, a renewal of the only hold: h takes the place of old.
		s.bytes += h.bytes() - old.bytes()
		if h.session() != 0 {
			h = s.indexHold(l, h)
		}
		if l.ext != nil {
			l.ext.permits += h.permits() - old.permits()
		}
		l.hold = h
		return
	}
	s.removeHold(l, old)
	s.addHold(l, h)
	l.idAndFlags = l.idAndFlags&^flagWoken | woken
}

// enqueueWaiter adds a waiter to the queues of all its keys.
//
// Requires: each key has a lock.
func (s *store) enqueueWaiter(w *waiter) { s.changeQueues(w, 1) }

// dequeueWaiter removes a waiter from the queues of all its keys. It does not wake the queues.
func (s *store) dequeueWaiter(w *waiter) { s.changeQueues(w, -1) }

func (s *store) changeQueues(w *waiter, n int32) {
	for i, key := range w.keys() {
		l := s.findMutable(int(w.db), key)
		s.extend(l)
		s.changeEntry(l, w, i, n)
	}
	s.changeIndexes(w, n)
	if id := w.session(); id != 0 {
		sess := s.mutableSession(id)
		sess.waiters += n
		sess.queueEntries += n * int32(len(w.keys()))
	}
	s.units -= QueueUnits * (len(w.keys()) - 1)
	s.bytes += int64(n) * w.bytes()
}

// replaceWaiter replaces a waiter (old) by a changed copy (w).
func (s *store) replaceWaiter(old, w *waiter) {
	s.dequeueWaiter(old)
	s.enqueueWaiter(w)
}

// wakeQueuesOf calls wakeQueue for the locks of all keys of a waiter.
func (s *store) wakeQueuesOf(w *waiter) {
	for _, key := range w.keys() {
		s.wakeQueue(s.findMutable(int(w.db), key))
	}
}

// normalize completes the change of a lock. It removes the extension if the lock does not need one. It removes the lock
// if the lock has no hold, waiter, delay and pending grant. It updates the agenda if the lock stays.
//
// For a live lock, normalize emits Created if the lock stays and flagPresent is not set. It emits Removed if it has
// removed the lock and flagPresent is set.
func (s *store) normalize(l *lock) {
	home := s.databaseOf(l)
	waiters := l.waiters()
	idle := waiters == 0 && (l.ext == nil || l.ext.delayEnd == 0 && l.ext.grantPendingSince == 0)
	if idle && l.ext != nil && l.ext.holds == nil {
		l.ext = nil
		s.bytes -= extensionBytes
	}
	gone := idle && l.holders() == 0
	if gone {
		home.remove(l)
		s.lockCount--
		s.bytes -= l.bytes()
	} else {
		home.schedule(l, s.firstDeadlineOf(l), waiters > 0)
	}
	if home.flush != nil || gone == (l.idAndFlags&flagPresent == 0) {
		return
	}
	kind := Created
	if l.idAndFlags ^= flagPresent; gone {
		kind = Removed
	}
	s.emit(kind, l.db(), l.key()).Text = l.text
}

// timers returns three deadlines of a lock: of its delay, of its pending grant, and of the wait that ends first. w is
// the waiter of that wait. A missing deadline is noDeadline. A pending grant is due at grantPendingSince, so its
// deadline is one millisecond before grantPendingSince.
func (s *store) timers(l *lock) (delay, grant, wait int64, w *waiter) {
	delay, grant, wait = noDeadline, noDeadline, noDeadline
	if m := l.ext; m != nil {
		if m.delayEnd != 0 {
			delay = m.delayEnd
		}
		if m.grantPendingSince != 0 {
			grant = m.grantPendingSince - 1
		}
		if w = s.firstWaitEnd(l); w != nil {
			wait = w.deadline
		}
	}
	return delay, grant, wait, w
}

// firstDeadlineOf returns the earliest deadline of the leases, the delay, the pending grant and the waits of a lock. It
// returns noDeadline if there is none. It ignores the deadlines of sessions.
func (s *store) firstDeadlineOf(l *lock) int64 {
	_, lease := l.firstLease()
	delay, grant, wait, _ := s.timers(l)
	return min(lease, delay, grant, wait)
}

// The estimated memory of the records in bytes. Each size is rounded up from the size that TestMemory measures.
const (
	lockBytes      = 120
	extensionBytes = 176
	holdBytes      = 136
	extraBytes     = 48
	memberBytes    = 80
	waiterBytes    = 400
	entryBytes     = 96
	sessionBytes   = 220
)

func (l *lock) bytes() int64 { return int64(lockBytes + len(l.key())) }

func (h *hold) bytes() int64 {
	n := int64(holdBytes + len(h.owner))
	if h.extra != noExtra {
		n += int64(extraBytes + len(h.note) + len(h.call))
	}
	return n
}

func (w *waiter) bytes() int64 {
	return int64(waiterBytes + len(w.owner) + len(w.note) + len(w.call) + len(w.keys())*entryBytes)
}

// changeSessions adds a session to the sessions and the totals of the table if n is 1, and removes it if n is -1.
func (s *store) changeSessions(sess *session, n int32) {
	setOrDelete(s.sessionsByID, sess, n)
	bytes := int(n) * int(sess.bytes())
	s.bytes += int64(bytes)
	s.sessionCounts.Add(int(sess.account), int(n))
	s.sessionMemory.Add(int(sess.account), bytes)
}

// LastAccount returns the highest account of all waiters and sessions that were ever in the table, or 0. A table that
// is loaded from a snapshot only knows those of the snapshot.
func (s *store) LastAccount() int { return max(1, len(s.counts), len(s.sessionCounts)) - 1 }

func (s *session) bytes() int64 { return int64(sessionBytes + len(s.name) + len(s.user)) }
