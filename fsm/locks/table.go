package locks

// Table is all locks, sessions and fences: what calls may do with them. What it promises is in the package's document.
type Table struct{ engine }

// New returns a table without locks.
func New() *Table { return newTable(nil) }

// newTable is New, with a count of the comparisons that the trees make, if compared is not nil.
func newTable(compared *int) *Table {
	return &Table{engine{store{
		databases: databases{compared: compared}, queues: newQueues(compared), sessions: newSessions(compared),
	}}}
}

// Copy returns a table that changes of the original do not change, nor the reverse, in constant time. The
// copy has no events.
func (t *Table) Copy() *Table { return &Table{engine{t.copy()}} }

// Begin says what time it is, and how many steps granting and sweeping may take from here on. Time never
// goes back. To be called as an entry begins and before each request.
func (t *Table) Begin(nowMillis int64, steps int) {
	t.now, t.steps = max(t.now, nowMillis), steps
	t.readAt = t.now
}

// Bytes is what the table counts for.
func (t *Table) Bytes() int64 { return t.bytes }

// Len is the number of locks, also of those that were flushed and whose losses are to be told.
func (t *Table) Len() int { return t.lockCount }

// Stats are numbers of the moment.
func (t *Table) Stats() Stats {
	return Stats{
		Locks: t.lockCount, Holds: t.holdCount, Waiters: t.waiterCount, Sessions: t.byID.Len(),
		Bytes: t.bytes, Fences: t.fences,
	}
}
