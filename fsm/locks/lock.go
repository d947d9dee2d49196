package locks

import (
	"math"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// lock is a key that an owner holds or waits for, or whose delay runs.
//
// A lock changes only between [store.mutable], which copies a record that a copy of the table may share, and
// [engine.finishStep].
type lock struct {
	// text is the text of the item that marks the lock, with the key in it. A probe has the bare key.
	text keyspace.LockText
	hash uint64
	// idAndFlags packs the flags (the low 8 bits) and the id, whose low byte is the number of the database.
	idAndFlags uint64
	generation uint64
	due        int64 // the first deadline, by which the agenda is ordered
	hold       *hold // the only hold; nil: none, or several
	// ext has what a lock needs beyond one hold. Nil: there is no queue, no delay and no pending grant.
	ext *extension
}

// extension has the fields that a lock needs beyond one hold.
type extension struct {
	holds   *holdSet // nil: there is at most one hold
	permits int64    // that are held
	// delayEnd is the last instant at which no request is granted. 0: no delay.
	delayEnd int64
	// grantPendingSince is the instant since which a grant of the queue is pending. 0: none is.
	grantPendingSince int64
	// ranks has the lengths of the parts of the queue.
	ranks [rankCount]int32
	// sessionHolds and sessionWaits count the holds and the waiters with sessions, multiKeyWaits counts the waiters for
	// several locks.
	sessionHolds, sessionWaits, multiKeyWaits int32
}

const (
	flagTouched   = 1 << iota // the lock is in store.touchedLocks
	flagWoken                 // the lock is in store.wokenLocks
	flagPresent               // Created was emitted
	flagContended             // the lock has a queue, on the agenda
	flagProbe                 // the lock is in no tree: see probeAt
	flagBits      = 0xff
	maxDatabases  = 256
)

const (
	// noDeadline is later than all deadlines.
	noDeadline = math.MaxInt64
	// minInstant is earlier than all deadlines.
	minInstant = math.MinInt64
)

func (l *lock) id() uint64 { return l.idAndFlags &^ flagBits }

func (l *lock) db() int { return int(l.idAndFlags >> 8 & (maxDatabases - 1)) }

// key returns the key, in the memory of the text.
func (l *lock) key() string {
	if l.idAndFlags&flagProbe != 0 {
		return string(l.text)
	}
	return l.text.Key()
}

// probeAt returns the key of a search in a tree of locks.
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

// waiters counts the entries of the queue; none of a nil lock.
func (l *lock) waiters() (n int) {
	if l != nil && l.ext != nil {
		for _, count := range l.ext.ranks {
			n += int(count)
		}
	}
	return n
}

func (l *lock) delayed() bool { return l != nil && l.ext != nil && l.ext.delayEnd != 0 }

func (l *lock) contended() bool { return l.idAndFlags&flagContended != 0 }

// permits counts the permits that are held.
func (l *lock) permits() int64 {
	switch {
	case l.ext != nil:
		return l.ext.permits
	case l.hold != nil:
		return l.hold.permits()
	}
	return 0
}

// anyHold returns one hold of the lock, or nil. All holds have the same mode.
func (l *lock) anyHold() *hold {
	if l.hold == nil && l.holders() > 0 {
		return l.ext.holds.byFence[0]
	}
	return l.hold
}

// holdOf returns the owner's hold, which may have ended and not be removed yet. Nil: there is no such hold, or no lock.
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

// holds returns the holds by fence, in memory that changes with the lock.
func (l *lock) holds() []*hold {
	switch {
	case l.hold != nil:
		return []*hold{l.hold}
	case l.holders() > 0:
		return l.ext.holds.byFence
	}
	return nil
}

// firstLease returns the hold whose lease ends first, and its deadline; nil and noDeadline if no hold has a lease.
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

// The orders of the trees compare texts last, since a text is in memory of its own.

func lockBefore(a, b *lock) bool {
	switch {
	case a.db() != b.db():
		return a.db() < b.db()
	case a.hash != b.hash:
		return a.hash < b.hash
	}
	return a.key() < b.key()
}

func agendaBefore(a, b *lock) bool {
	if a.contended() != b.contended() {
		return a.contended()
	}
	return dueBefore(a, b)
}

func dueBefore(a, b *lock) bool {
	if a.due != b.due {
		return a.due < b.due
	}
	return lockBefore(a, b)
}

func (l *lock) passFields(c *codec) {
	if c.w != nil { // readLock has read the key
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
	var first []*waiter // those whose first key is the lock's
	if l.waiters() > 0 {
		for w := range c.t.waitersAt(l) {
			if w.keys()[0] == l.key() {
				first = append(first, w)
			}
		}
	}
	passRecords(c, first, (*waiter).passFields, func() { c.readWaiter(l) })
}

// readLock reads a lock of a flushed database, or of a live one if flushed is nil.
func (c *codec) readLock(flushed *database) {
	c.recordErr = errLock
	db := uint64(0)
	passUint(c, &db, maxDatabases-1)
	t, l := c.t, &lock{text: c.LockText(int(db)), due: noDeadline}
	c.key = l.key()
	l.hash = keyspace.Hash(c.key)
	t.lockIDs++
	t.lockCount++
	// flagTouched keeps the lock out of store.touchedLocks until scheduleLocks.
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
