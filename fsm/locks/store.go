package locks

import (
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// store is the data of a table, what was given out, and the call under way.
type store struct {
	databases
	queues
	sessions

	now int64
	// readAt is the instant at which the call under way sees locks: now, or just after the event that it runs.
	readAt int64
	budget
	// generation is counted up by Copy. Locks and sessions of an older generation may be a copy's too, so
	// they are copied before they change.
	generation uint64
	// fences and orders were given out. lockIDs are names for the trees alone: no order that shows rests on them, and no
	// snapshot has them.
	fences, orders, lockIDs uint64
	bytes                   int64
	lockCount, holdCount    int

	origins []*protocol.Incarnation // known incarnations of nodes, so that holds share them
	// touched are the locks that the call under way may have changed: see finish.
	touched []*lock
	// woken are those of them whose queues are to be looked at.
	woken  []*lock
	events []Event
	last   lastLookup
	probe  *probe // nil until the first use
}

// newTree is a tree, with a count of the comparisons that it makes, if compared is not nil.
func newTree[T any](less func(a, b T) bool, compared *int) *btree.BTreeG[T] {
	if compared != nil {
		plain := less
		less = func(a, b T) bool {
			*compared++
			return plain(a, b)
		}
	}
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

// copy is a store that changes of the original do not change, nor the reverse, in constant time.
func (s *store) copy() store {
	s.generation++
	c := *s
	c.databases, c.queues = s.databases.copy(), s.queues.copy()
	c.sessions = s.sessions.copy()
	c.origins = slices.Clone(s.origins)
	c.touched, c.woken, c.events, c.last, c.probe = nil, nil, nil, lastLookup{}, nil
	return c
}

// seek is the first item at or behind pivot.
func seek[T any](tree *btree.BTreeG[T], pivot T) (found T, ok bool) {
	tree.Ascend(pivot, func(item T) bool {
		found, ok = item, true
		return false
	})
	return found, ok
}

// saturated is a + b, or the largest number.
func saturated(a, b int64) int64 {
	if a > 0 && b > Forever-a {
		return Forever
	}
	return a + b
}

// cloned is a copy of s that shares no memory with a log entry.
func cloned(s string) string { return strings.Clone(s) }

// origin is o as all holds of an incarnation share it.
func (s *store) origin(o protocol.Incarnation) *protocol.Incarnation {
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
	fresh := &protocol.Incarnation{Node: cloned(o.Node), Epoch: o.Epoch}
	s.origins = append(slices.Clip(s.origins), fresh)
	return fresh
}

var noOrigin protocol.Incarnation

// lastLookup is the lock that the call under way looked for last, as most calls look for one lock several times.
// Empty between calls.
type lastLookup struct {
	known bool
	db    int
	key   string
	hash  uint64
	lock  *lock // nil: there is none
}

// probe is what trees are searched by. Calls that change the table share one, for what they do most; what only reads
// makes its own, since reads run beside each other.
type probe struct {
	lock   lock
	waiter waiter
}

func (s *store) probes() *probe {
	if s.probe == nil {
		s.probe = new(probe)
	}
	return s.probe
}

// find is the lock of a key for a call that may change it, nil if there is none. It may be in a flushed database.
func (s *store) find(db int, key string) *lock {
	if n := &s.last; !n.known || n.db != db || n.key != key {
		hash := keyspace.Hash(key)
		*n = lastLookup{true, db, key, hash, s.search(&s.probes().lock, db, key, hash)}
	}
	return s.last.lock
}

// waiterOf is the owner's place in a queue, nil if there is none.
func (s *store) waiterOf(l *lock, owner string) *waiter {
	return s.queues.waiterOf(&s.probes().waiter, l, owner)
}

// take is a lock to be changed, nil if there is none.
func (s *store) take(db int, key string) *lock {
	l := s.find(db, key)
	if l == nil {
		return nil
	}
	return s.own(l)
}

// takeNew is take, and makes a lock that is missing.
func (s *store) takeNew(db int, key string) *lock {
	if l := s.take(db, key); l != nil {
		return l
	}
	s.lockIDs++
	s.lockCount++
	l := &lock{
		text: keyspace.NewLockText(key), hash: s.last.hash, due: never, generation: s.generation,
		head: s.lockIDs<<16 | uint64(db)<<8 | flagTouched,
	}
	s.makeDatabase(db).set(l)
	s.last.lock = l
	s.bytes += l.bytes()
	s.touched = append(s.touched, l)
	return l
}

// own is the lock l of the table to be changed.
func (s *store) own(l *lock) *lock {
	if l.generation != s.generation {
		home := s.home(l)
		c := *l
		c.generation = s.generation
		if l.more != nil {
			more := *l.more
			more.holds = more.holds.clone()
			c.more = &more
		}
		if s.last.lock == l {
			s.last.lock = &c
		}
		l = &c
		home.set(l)
	}
	if l.head&flagTouched == 0 {
		l.head |= flagTouched
		s.touched = append(s.touched, l)
	}
	return l
}

// wake notes that a waiter in the queue may be granted.
func (s *store) wake(l *lock) {
	if l.head&flagWake == 0 {
		l.head |= flagWake
		s.woken = append(s.woken, l)
	}
}

// extend is the lock's extension, which is made if need be.
func (s *store) extend(l *lock) *extension {
	if l.more == nil {
		l.more = &extension{}
		if l.hold != nil {
			l.more.permits, l.more.sessionHolds = l.hold.permits(), l.hold.sessions()
		}
		s.bytes += extensionBytes
	}
	return l.more
}

// ownSession is a session to be changed. Requires: there is one.
func (s *store) ownSession(id uint64) *session {
	found := s.session(id)
	if found.generation != s.generation {
		c := *found
		c.generation = s.generation
		found = &c
		s.byID.Set(found)
	}
	return found
}

// addHold adds a hold of an owner that has none.
func (s *store) addHold(l *lock, h *hold) {
	s.holdCount++
	s.bytes += h.bytes()
	if id := h.session(); id != 0 {
		s.holdsOf.Set(h)
		of := s.ownSession(id)
		of.late = of.late && of.holds > 0
		of.holds++
	}
	if l.hold == nil && l.more == nil {
		l.hold = h
		return
	}
	m := s.extend(l)
	m.permits += h.permits()
	m.sessionHolds += h.sessions()
	switch {
	case l.hold != nil:
		m.holds = &holdSet{}
		m.holds.add(l.hold)
		m.holds.add(h)
		l.hold = nil
		s.bytes += 2 * memberBytes
	case m.holds != nil:
		m.holds.add(h)
		s.bytes += memberBytes
	default:
		l.hold = h
	}
}

// removeHold removes a hold of the lock.
func (s *store) removeHold(l *lock, h *hold) {
	s.holdCount--
	s.bytes -= h.bytes()
	if id := h.session(); id != 0 {
		s.holdsOf.Delete(h)
		s.ownSession(id).holds--
	}
	s.wake(l)
	if m := l.more; m != nil {
		m.permits -= h.permits()
		m.sessionHolds -= h.sessions()
		if m.holds != nil {
			m.holds.remove(h)
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

// replaceHold puts a changed copy of a hold in its place.
func (s *store) replaceHold(l *lock, old, h *hold) {
	woken := l.head & flagWake
	if l.hold != nil && old.session() == h.session() && (h.session() == 0 || old.fence == h.fence) {
		// The common case: a lease anew.
		s.bytes += h.bytes() - old.bytes()
		if h.session() != 0 {
			s.holdsOf.Set(h)
		}
		if l.more != nil {
			l.more.permits += h.permits() - old.permits()
		}
		l.hold = h
		return
	}
	s.removeHold(l, old)
	s.addHold(l, h)
	l.head = l.head&^flagWake | woken
}

// pushQueue puts a waiter into all its queues. Requires: the locks are there.
func (s *store) pushQueue(w *waiter) { s.changeQueues(w, 1) }

// removeQueue takes a waiter out of all its queues.
func (s *store) removeQueue(w *waiter) { s.changeQueues(w, -1) }

func (s *store) changeQueues(w *waiter, n int32) {
	for i, key := range w.keys() {
		l := s.take(int(w.db), key)
		s.extend(l)
		s.link(l, w, i, n)
	}
	s.list(w, n)
	if w.session != 0 {
		of := s.ownSession(w.session)
		of.waiters += n
		of.places += n * int32(len(w.keys()))
	}
	s.chargePlaces(w)
	s.bytes += int64(n) * w.bytes()
}

// replaceWaiter puts a changed copy of a waiter in its place.
func (s *store) replaceWaiter(old, w *waiter) {
	s.removeQueue(old)
	s.pushQueue(w)
}

// wakeAll notes that others in the queues of a waiter may be granted.
func (s *store) wakeAll(w *waiter) {
	for _, key := range w.keys() {
		s.wake(s.take(int(w.db), key))
	}
}

// normalize puts a lock into its least form, and tells whether it is there.
func (s *store) normalize(l *lock) {
	home := s.home(l)
	waiters := l.waiters()
	idle := waiters == 0 && (l.more == nil || l.more.delay == 0 && l.more.grantAt == 0)
	if idle && l.more != nil && l.more.holds == nil {
		l.more = nil
		s.bytes -= extensionBytes
	}
	gone := idle && l.holders() == 0
	if gone {
		home.remove(l)
		s.lockCount--
		s.bytes -= l.bytes()
	} else {
		home.schedule(l, s.dueOf(l), waiters > 0)
	}
	if home.flush != nil || gone == (l.head&flagPresent == 0) {
		return
	}
	kind := Came
	if l.head ^= flagPresent; gone {
		kind = Went
	}
	s.emit(Event{Kind: kind, DB: l.db(), Key: l.key(), Text: l.text})
}

// timers are the instants after which the delay of a lock ends, the queue is granted the lock, and the first wait ends:
// never, if there is none. w waits until then.
func (s *store) timers(l *lock) (delay, grant, wait int64, w *waiter) {
	delay, grant, wait = never, never, never
	if m := l.more; m != nil {
		if m.delay != 0 {
			delay = m.delay
		}
		if m.grantAt != 0 {
			grant = m.grantAt - 1
		}
		if w = s.firstWaitEnd(l); w != nil {
			wait = w.deadline
		}
	}
	return delay, grant, wait, w
}

// dueOf is the first instant after which something ends at a lock, or is to be granted. Ends of sessions are not among
// that.
func (s *store) dueOf(l *lock) int64 {
	_, lease := l.firstLease()
	delay, grant, wait, _ := s.timers(l)
	return min(lease, delay, grant, wait)
}

// What the table counts for, in bytes: measured by TestMemory, and rounded up.
const (
	lockBytes      = 120
	extensionBytes = 176
	holdBytes      = 136
	extraBytes     = 48
	memberBytes    = 80
	waiterBytes    = 400
	placeBytes     = 96
	sessionBytes   = 220
)

func (l *lock) bytes() int64 { return int64(lockBytes + len(l.key())) }

func (h *hold) bytes() int64 {
	n := int64(holdBytes + len(h.owner))
	if h.extra != nil {
		n += int64(extraBytes + len(h.extra.note) + len(h.extra.call))
	}
	return n
}

func (w *waiter) bytes() int64 {
	return int64(waiterBytes + len(w.owner) + len(w.note) + len(w.call) + len(w.keys())*placeBytes)
}

func (s *session) bytes() int64 { return int64(sessionBytes + len(s.name) + len(s.user)) }
