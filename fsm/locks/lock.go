package locks

import (
	"math"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// lock is the record of one lock. The record exists while the lock has a hold, a waiter, a delay or a pending grant.
//
// A copy of the table may share the record. A method that changes a lock therefore gets a mutable record from
// [store.mutable] first. [engine.finishStep] later grants the lock to waiters, and updates the agenda.
type lock struct {
	// text contains the key. The keyspace item that marks the lock has the same text, so lock and item share memory. In a
	// probe, text is only the key.
	text keyspace.LockText
	hash uint64 // the hash of the key
	// idAndFlags has the flags in bits 0 to 7, the number of the database in bits 8 to 15, and a serial number in the bits
	// above.
	idAndFlags uint64
	generation uint64 // the generation of the record, see [store]
	deadline   int64  // the deadline of the first timer, or noDeadline
	hold       *hold  // the hold of a lock that has exactly one; otherwise nil
	// ext is nil if the lock has at most one hold, and no queue, delay or pending grant.
	ext *extension
}

// extension has the fields of a lock that few locks need.
type extension struct {
	holds             *holdSet         // nil if the lock has at most one hold
	permits           int64            // the sum of the permits of all holds
	delayEnd          int64            // the deadline of the delay, or 0 if there is none
	grantPendingSince int64            // the time since which a grant to a waiter is pending, or 0
	ranks             [rankCount]int32 // the number of waiters of each rank
	sessionHolds      int32            // the number of holds that have a session
	sessionWaits      int32            // the number of waiters that have a session
}

const (
	flagTouched   = 1 << iota // the lock is in store.touchedLocks
	flagWoken                 // the lock is in store.wokenLocks
	flagPresent               // Created was emitted for the lock, and no Removed after it
	flagContended             // the lock is in the contended part of the agenda
	flagProbe                 // the record is a probe: see probeAt
	flagBits      = 0xff
	maxDatabases  = 256
)

const (
	noDeadline = math.MaxInt64 // later than all deadlines
	minInstant = math.MinInt64 // earlier than all deadlines
)

func (l *lock) id() uint64 { return l.idAndFlags &^ flagBits }

func (l *lock) db() int { return int(l.idAndFlags >> 8 & (maxDatabases - 1)) }

// key returns the key of a lock or of a probe. The string shares memory with the text.
func (l *lock) key() string {
	if l.idAndFlags&flagProbe != 0 {
		return string(l.text)
	}
	return l.text.Key()
}

// probeAt returns a probe. A probe is not a lock of the table: it is only the argument of a search in a tree of locks.
func probeAt(db int, hash uint64, key string) lock {
	return lock{text: keyspace.LockText(key), hash: hash, idAndFlags: uint64(db)<<8 | flagProbe}
}

// holders counts the holds. A nil lock has none.
func (l *lock) holders() int {
	switch {
	case l == nil:
		return 0
	case l.hold != nil:
		return 1
	case l.ext != nil && l.ext.holds != nil:
		return len(l.ext.holds.byFence)
	}
	return 0
}

// waiters counts the entries of the queue. A nil lock has none.
func (l *lock) waiters() (n int) {
	if l != nil && l.ext != nil {
		for _, count := range l.ext.ranks {
			n += int(count)
		}
	}
	return n
}

// delayed reports whether the lock has a delay. A nil lock has none.
func (l *lock) delayed() bool { return l != nil && l.ext != nil && l.ext.delayEnd != 0 }

func (l *lock) contended() bool { return l.idAndFlags&flagContended != 0 }

// permits returns the sum of the permits of all holds.
func (l *lock) permits() int64 {
	switch {
	case l.ext != nil:
		return l.ext.permits
	case l.hold != nil:
		return l.hold.permits()
	}
	return 0
}

// anyHold returns one of the holds, or nil if there is none. All holds of a lock have the same mode.
func (l *lock) anyHold() *hold {
	if l.hold == nil && l.holders() > 0 {
		return l.ext.holds.byFence[0]
	}
	return l.hold
}

// holdOf returns the owner's hold, or nil if the owner has none. The hold may have ended. A nil lock has no holds.
func (l *lock) holdOf(owner string) *hold {
	switch {
	case l.holders() == 0:
		return nil
	case l.hold == nil:
		return l.ext.holds.ofOwner(owner)
	case l.hold.owner != owner:
		return nil
	}
	return l.hold
}

// holds returns the holds in the order of their fences. The slice is invalid after a change of the lock.
func (l *lock) holds() []*hold {
	switch {
	case l.hold != nil:
		return []*hold{l.hold}
	case l.holders() > 0:
		return l.ext.holds.byFence
	}
	return nil
}

// firstLease returns the hold whose lease ends first, and the deadline of that lease. The results are nil and
// noDeadline if no hold has a lease.
func (l *lock) firstLease() (*hold, int64) {
	switch {
	case l.hold != nil && l.hold.deadline != noDeadline:
		return l.hold, l.hold.deadline
	case l.hold == nil && l.holders() > 0 && len(l.ext.holds.byEnd) > 0:
		first := l.ext.holds.byEnd[0]
		return first, first.deadline
	}
	return nil, noDeadline
}

// lockBefore orders locks by database, hash and key. It compares keys last, because a key is in separate memory and
// thus slower to read.
func lockBefore(a, b *lock) bool {
	switch {
	case a.db() != b.db():
		return a.db() < b.db()
	case a.hash != b.hash:
		return a.hash < b.hash
	}
	return a.key() < b.key()
}

// agendaBefore is the order of an agenda: contended locks come before all other locks. Within each of the two parts,
// locks are ordered by their first timers.
func agendaBefore(a, b *lock) bool {
	if a.contended() != b.contended() {
		return a.contended()
	}
	return dueBefore(a, b)
}

func dueBefore(a, b *lock) bool {
	if a.deadline != b.deadline {
		return a.deadline < b.deadline
	}
	return lockBefore(a, b)
}

func (l *lock) passFields(c *codec) {
	if c.w != nil { // if c.w is nil, readLock has read both values already
		c.w.Uint(uint64(l.db()))
		c.w.String(l.key())
	}
	extended := l.ext != nil
	if passFlags(c, &extended); extended {
		m := c.t.extend(l)
		passInt(c, &m.grantPendingSince, 0, noDeadline-1)
		passInt(c, &m.delayEnd, 0, Forever)
	}
	passRecords(c, l.holds(), (*hold).passFields, func() { c.readHold(l) })
	var first []*waiter // a snapshot has each waiter once, at the lock of its first key
	if l.waiters() > 0 {
		for w := range c.t.waitersAt(l) {
			if w.keys()[0] == l.key() {
				first = append(first, w)
			}
		}
	}
	passRecords(c, first, (*waiter).passFields, func() { c.readWaiter(l) })
}

// readLock reads a lock, and stores it in the given flushed database. If the parameter flushed is nil, readLock stores
// the lock in the live database whose number it has read.
func (c *codec) readLock(flushed *database) {
	c.recordErr = errLock
	db := uint64(0)
	passUint(c, &db, maxDatabases-1)
	t, l := c.t, &lock{text: c.LockText(int(db)), deadline: noDeadline}
	c.key = l.key()
	l.hash = keyspace.Hash(c.key)
	t.lockIDs++
	t.lockCount++
	// flagTouched stops mutable from adding the lock to touchedLocks. scheduleLocks clears flagTouched.
	l.idAndFlags = t.lockIDs<<16 | db<<8 | flagPresent | flagTouched
	if !c.require(!t.HasOrFlushed(int(db), c.key) && (c.lastLock == nil || lockBefore(c.lastLock, l))) {
		return
	}
	if c.lastLock = l; flushed == nil {
		flushed = t.makeDatabase(int(db))
	}
	flushed.set(l)
	t.bytes += l.bytes()
	l.passFields(c)
}
