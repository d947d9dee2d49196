package locks

import (
	"math"
	"slices"
)

// Table has all locks, sessions and fences, and the calls that change them. The package's document has its promises.
type Table struct{ engine }

// New returns a table without locks.
func New() *Table { return newTable(nil) }

// newTable returns a table without locks, which counts the comparisons of its trees if compared is not nil.
func newTable(compared *int) *Table {
	return &Table{engine{store{
		databases: databases{compared: compared}, queues: newQueues(compared), sessions: newSessions(compared),
	}}}
}

// Copy returns an independent copy, without events, in constant time.
func (t *Table) Copy() *Table { return &Table{engine{t.copy()}} }

// Begin sets the time, which never goes back, and the budget in units of work. It is called at the beginning of an
// entry, and before each request.
func (t *Table) Begin(nowMillis int64, budget int) {
	t.now, t.units = max(t.now, nowMillis), budget
	t.readAt = t.now
}

// Bytes returns the counted memory of the table in bytes.
func (t *Table) Bytes() int64 { return t.bytes }

// Len counts the locks, including flushed ones.
func (t *Table) Len() int { return t.lockCount }

// Stats returns the present counts.
func (t *Table) Stats() Stats {
	return Stats{
		Locks: t.lockCount, Holds: t.holdCount, Waiters: t.waiterCount, Sessions: t.sessionsByID.Len(),
		Bytes: t.bytes, Fences: t.fences,
	}
}

// LongestLease returns the longest lease of a hold or a session.
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

// RaiseCounters increases the last fence and the last session number by the same amount, and to at least above. Both
// stay within MaxFence.
func (t *Table) RaiseCounters(by, above uint64) {
	raised := func(n uint64) uint64 { return max(n, min(max(n+min(by, MaxFence), above), MaxFence)) }
	t.fences, t.sessionIDs = raised(t.fences), raised(t.sessionIDs)
}

// RaiseFences makes all later fences larger than above, and returns the last fence, which is given out to nobody.
func (t *Table) RaiseFences(above uint64) (reached uint64) {
	t.fences = max(t.fences, above)
	return t.fences
}

// RemoveAll removes all locks and sessions, and keeps the counters of fences, orders and session ids. It emits no
// events. A restore from a backup calls it.
func (t *Table) RemoveAll() {
	empty := New()
	empty.now, empty.generation = t.now, t.generation
	empty.fences, empty.orders, empty.sessionIDs, empty.secret = t.fences, t.orders, t.sessionIDs, t.secret
	*t = *empty
}

// RenewAll removes all waiters, detaches all sessions from their connections, and restarts all leases. It emits no
// events, and takes time in proportion to the table. A restore from a backup calls it.
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

// renewHolds restarts the leases of a lock's holds.
func (t *Table) renewHolds(l *lock) {
	for _, old := range slices.Clone(l.holds()) {
		h := *old
		if h.origin, h.conn = &noOrigin, 0; h.deadline != noDeadline {
			h.deadline = addSaturating(t.now, h.lease())
		}
		t.replaceHold(l, old, &h)
	}
}
