package locks

import (
	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// database has the locks of one numbered database. [Table.Flush] replaces a live database by an empty one, and the old
// database is then flushed. The table keeps the flushed database until all holds in it are emitted as lost, and all
// queues in it have moved to the live database.
type database struct {
	locks *btree.BTreeG[*lock] // ordered by hash and key
	// agenda has the contended locks first, and then the uncontended locks that have a timer. Both parts are ordered by
	// the deadline of each lock's first timer.
	agenda *btree.BTreeG[*lock]
	flush  *flush // nil if the database is live
}

// flush describes a call of [Table.Flush], which ended all holds of a database.
type flush struct {
	at      int64  // the time of the flush
	causeID uint64 // the id of the command that flushed the database: see [Event.CauseID]
}

func newDatabase() *database {
	return &database{locks: newTree(lockBefore), agenda: newTree(agendaBefore)}
}

func (d *database) copy() *database {
	return &database{locks: d.locks.IsoCopy(), agenda: d.agenda.IsoCopy(), flush: d.flush}
}

// search returns the lock of a key, or nil. It overwrites *probe, so that the search allocates no memory.
func (d *database) search(probe *lock, db int, key string, hash uint64) *lock {
	if d == nil || d.locks.Len() == 0 {
		return nil
	}
	*probe = probeAt(db, hash, key)
	l, _ := d.locks.Get(probe)
	probe.text = ""
	return l
}

// has reports whether the database stores the record l. It reports false if the database stores another record of the
// same lock.
func (d *database) has(l *lock) bool {
	found, ok := d.locks.Get(l)
	return ok && found == l
}

// set stores the record l. If the database has an older record of the same lock, l replaces that record.
func (d *database) set(l *lock) {
	d.locks.Set(l)
	if l.scheduled() {
		d.agenda.Set(l)
	}
}

func (d *database) remove(l *lock) {
	d.locks.Delete(l)
	if l.scheduled() {
		d.agenda.Delete(l)
	}
}

// schedule updates the agenda after a change of lock l. It sets the deadline of the lock's first timer, and marks the
// lock as contended or not.
func (d *database) schedule(l *lock, deadline int64, contended bool) {
	if l.deadline == deadline && l.contended() == contended {
		return
	}
	if l.scheduled() {
		d.agenda.Delete(l)
	}
	l.deadline = deadline
	l.idAndFlags &^= flagContended
	if contended {
		l.idAndFlags |= flagContended
	}
	if l.scheduled() {
		d.agenda.Set(l)
	}
}

// scheduled reports whether the lock belongs on the agenda.
func (l *lock) scheduled() bool { return l.deadline != noDeadline || l.contended() }

// firstContended returns the first contended lock of the agenda, or nil if no lock is contended. A contended lock
// without a timer comes after all contended locks with a timer.
func (d *database) firstContended() *lock {
	if l, ok := d.agenda.Min(); ok && l.contended() {
		return l
	}
	return nil
}

// firstUncontended returns the first uncontended lock of the agenda, or nil if no uncontended lock has a timer.
func (d *database) firstUncontended() *lock {
	l, _ := seek(d.agenda, uncontendedProbe)
	return l
}

// uncontendedProbe sorts after all contended locks of an agenda, and before all uncontended locks.
var uncontendedProbe = &lock{deadline: minInstant, idAndFlags: flagProbe}

// databases has all databases of a table.
type databases struct {
	liveDatabases    []*database // indexed by number; may be shorter than maxDatabases
	flushedDatabases []*database // in the order of the flushes
}

func (s *databases) copy() databases {
	copied := func(from []*database) (to []*database) {
		for _, d := range from {
			to = append(to, d.copy())
		}
		return to
	}
	return databases{copied(s.liveDatabases), copied(s.flushedDatabases)}
}

// database returns the live database with the number db, or nil if [databases.makeDatabase] has not made that database
// yet.
func (s *databases) database(db int) *database {
	if db < 0 || db >= len(s.liveDatabases) {
		return nil
	}
	return s.liveDatabases[db]
}

// makeDatabase returns the live database with the number db. If that database is missing, makeDatabase makes the
// missing databases up to that number.
func (s *databases) makeDatabase(db int) *database {
	for len(s.liveDatabases) <= db {
		s.liveDatabases = append(s.liveDatabases, newDatabase())
	}
	return s.liveDatabases[db]
}

// databaseOf returns the live or flushed database that stores the record l.
func (s *databases) databaseOf(l *lock) *database {
	for _, d := range s.flushedDatabases {
		if d.has(l) {
			return d
		}
	}
	return s.database(l.db())
}

// flushOf returns the flush of the database that stores the record l, or nil if that database is live.
func (s *databases) flushOf(l *lock) *flush {
	if len(s.flushedDatabases) == 0 {
		return nil
	}
	return s.databaseOf(l).flush
}

// search returns the lock of a key, or nil. It searches the live database first, and then the flushed databases. It
// overwrites *probe.
func (s *databases) search(probe *lock, db int, key string, hash uint64) *lock {
	if l := s.database(db).search(probe, db, key, hash); l != nil {
		return l
	}
	for _, d := range s.flushedDatabases {
		if l := d.search(probe, db, key, hash); l != nil {
			return l
		}
	}
	return nil
}

// peek returns the lock of a key in the live database, or nil. It writes no memory of the table, so parallel readers
// may call peek.
func (s *databases) peek(db int, key string) *lock {
	return s.database(db).search(new(lock), db, key, keyspace.Hash(key))
}

// firstFlushed returns the flushed lock that moves to the live database next, and the flushed database d that has the
// lock. Contended locks of all flushed databases come first, and then the locks of the oldest flushed database. If the
// oldest flushed database is empty, firstFlushed returns that database and a nil lock. If no database is flushed, both
// results are nil.
func (s *databases) firstFlushed() (d *database, first *lock) {
	for _, d := range s.flushedDatabases {
		if l := d.firstContended(); l != nil {
			return d, l
		}
	}
	if len(s.flushedDatabases) == 0 {
		return nil, nil
	}
	d = s.flushedDatabases[0]
	first, _ = d.locks.Min()
	return d, first
}

// firstLock returns the live lock whose first timer has the earliest deadline, or nil. If includeUncontended is false,
// firstLock considers only contended locks. If none of the considered locks has a timer, firstLock may return a
// contended lock without a timer.
func (s *databases) firstLock(includeUncontended bool) (first *lock) {
	for _, d := range s.liveDatabases {
		if d.agenda.Len() == 0 {
			continue
		}
		if l := d.firstContended(); l != nil && (first == nil || dueBefore(l, first)) {
			first = l
		}
		if l := d.firstUncontended(); includeUncontended && l != nil && (first == nil || dueBefore(l, first)) {
			first = l
		}
	}
	return first
}

// passFields writes a flushed database to a snapshot, or reads a flushed database from a snapshot.
func (d *database) passFields(c *codec) {
	passInt(c, &d.flush.at, minInstant, noDeadline)
	passUint(c, &d.flush.causeID, anyUint)
	passList(c, d.locks.Len(), d.locks.Scan, (*lock).passFields, func() { c.readLock(d) })
}

func (c *codec) readFlushed() {
	d := newDatabase()
	d.flush, c.lastLock = &flush{}, nil
	d.passFields(c)
	first, _ := d.locks.Min()
	c.recordErr = errFlush
	c.require(first == nil || first.db() == c.lastLock.db())
	c.t.flushedDatabases = append(c.t.flushedDatabases, d)
}
