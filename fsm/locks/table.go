package locks

import (
	"math"
	"slices"
)

// Table is the lock table. The package documentation has the promises of a table. A call that changes the table must
// not run in parallel with any other call. Calls that only read may run in parallel with each other.
type Table struct{ engine }

// New returns an empty table.
func New() *Table { return &Table{engine{store{queues: newQueues(), sessions: newSessions()}}} }

// Copy returns an independent copy of the table, without events, in constant time.
func (t *Table) Copy() *Table { return &Table{engine{t.copy()}} }

// Begin sets the time in milliseconds and the budget in units of work. It ignores a time that is earlier than the time
// of the table. The state machine calls Begin before it runs due events or changes the table.
func (t *Table) Begin(nowMillis int64, budget int) {
	t.now, t.units = max(t.now, nowMillis), budget
	t.readAt = t.now
}

// Bytes returns the estimated memory of the table in bytes.
func (t *Table) Bytes() int64 { return t.bytes }

// Len counts the live and the flushed locks.
func (t *Table) Len() int { return t.lockCount }

// Stats returns the counts of a table.
func (t *Table) Stats() Stats {
	return Stats{
		Locks: t.lockCount, Holds: t.holdCount, Waiters: t.waiterCount, Sessions: t.sessionsByID.Len(),
		Bytes: t.bytes, Fences: t.fences,
	}
}

// LongestLease returns the longest lease of all holds and sessions, in milliseconds. It takes time in proportion to the
// size of the table.
func (t *Table) LongestLease() (longest int64) {
	for l := range t.allLocks() {
		for _, h := range l.holds() {
			longest = max(longest, h.lease())
		}
	}
	t.sessionsByID.Scan(func(s *session) bool {
		longest = max(longest, s.lease)
		return true
	})
	return longest
}

// RaiseCounters raises the last fence and the last session number. It adds increase to each of these two numbers, and
// then raises each to at least minimum. It raises neither number beyond MaxFence.
func (t *Table) RaiseCounters(increase, minimum uint64) {
	raised := func(n uint64) uint64 { return max(n, min(max(n+min(increase, MaxFence), minimum), MaxFence)) }
	t.fences, t.sessionIDs = raised(t.fences), raised(t.sessionIDs)
}

// RaiseFences raises the last fence to at least minimum, and returns the last fence. All later fences are larger than
// the returned fence.
func (t *Table) RaiseFences(minimum uint64) (last uint64) {
	t.fences = max(t.fences, minimum)
	return t.fences
}

// RemoveAll removes all locks and sessions. It keeps the secret and the last fence, order and session number. It emits
// no events. A restore from a backup calls RemoveAll, unless the restore keeps the locks.
func (t *Table) RemoveAll() {
	empty := New()
	empty.now, empty.generation = t.now, t.generation
	empty.fences, empty.orders, empty.sessionIDs, empty.secret = t.fences, t.orders, t.sessionIDs, t.secret
	*t = *empty
}

// RenewAll removes all waiters, runs all due events, detaches all holds and sessions from their connections, and
// restarts all leases. It emits no events. It takes time in proportion to the size of the table. A restore from a
// backup calls RenewAll if the restore keeps the locks.
func (t *Table) RenewAll() {
	t.units = math.MaxInt / 2
	for k, ok := t.waitersByOwner.Min(); ok; k, ok = t.waitersByOwner.Min() {
		t.dequeueWaiter(k.waiter)
	}
	t.finishStep()
	t.nodeEnds = nil
	t.Sweep()
	for _, l := range slices.Collect(t.allLocks()) {
		t.renewHolds(t.mutable(l))
	}
	t.finishStep()
	for _, shared := range t.sessionsByID.Items() {
		s := t.mutableSession(shared.id)
		t.unschedule(s)
		t.detach(s)
		t.startLease(s, addSaturating(t.now, s.lease))
	}
	t.units, t.events = 0, nil
}

// renewHolds detaches all holds of a lock from their connections, and restarts their leases.
func (t *Table) renewHolds(l *lock) {
	for _, old := range slices.Clone(l.holds()) {
		h := *old
		if h.origin, h.conn = &noOrigin, 0; h.deadline != noDeadline {
			h.deadline = addSaturating(t.now, h.lease())
		}
		t.replaceHold(l, old, &h)
	}
}
