package locks

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
		Locks: t.lockCount, Holds: t.holdCount, Waiters: t.waiterCount, Sessions: t.byID.Len(),
		Bytes: t.bytes, Fences: t.fences,
	}
}
