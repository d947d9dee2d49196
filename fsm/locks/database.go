package locks

import (
	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// database has the locks of one numbered database. [Table.Flush] puts an empty database in its place. The table keeps
// the flushed database until it has emitted the holds as lost and has moved the queues to the live database.
type database struct {
	locks *btree.BTreeG[*lock] // ordered by database, hash and key
	// agenda has the contended locks first, and then the other locks that have a timer. Each part is ordered by the time
	// of the first timer.
	agenda *btree.BTreeG[*lock]
	flush  *flush // nil in a live database
}

// flush describes a flush, which ends all holds of a database.
type flush struct {
	at    int64  // the time of the flush
	cause uint64 // the id of the command, see [Event]
}

func newDatabase(compared *int) *database {
	return &database{locks: newTree(lockBefore, compared), agenda: newTree(agendaBefore, compared)}
}

func (d *database) copy() *database {
	return &database{locks: d.locks.IsoCopy(), agenda: d.agenda.IsoCopy(), flush: d.flush}
}

// search returns the lock of a key, or nil. It uses probe as memory for the key of the search.
func (d *database) search(probe *lock, db int, key string, hash uint64) *lock {
	if d == nil || d.locks.Len() == 0 {
		return nil
	}
	*probe = probeAt(db, hash, key)
	l, _ := d.locks.Get(probe)
	probe.text = ""
	return l
}

// has reports whether l is the record that the database stores for this lock.
func (d *database) has(l *lock) bool {
	found, ok := d.locks.Get(l)
	return ok && found == l
}

// set stores a lock, and replaces an older record of the same lock.
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

// schedule stores the time of a lock's first timer and whether the lock is contended, and updates the agenda.
func (d *database) schedule(l *lock, due int64, contended bool) {
	if l.due == due && l.contended() == contended {
		return
	}
	if l.scheduled() {
		d.agenda.Delete(l)
	}
	l.due = due
	l.idAndFlags &^= flagContended
	if contended {
		l.idAndFlags |= flagContended
	}
	if l.scheduled() {
		d.agenda.Set(l)
	}
}

// scheduled reports whether the lock is on the agenda.
func (l *lock) scheduled() bool { return l.due != noDeadline || l.contended() }

// firstContended returns the contended lock with the first timer, or nil if no lock is contended.
func (d *database) firstContended() *lock {
	if l, ok := d.agenda.Min(); ok && l.contended() {
		return l
	}
	return nil
}

// firstUncontended returns the uncontended lock with the first timer, or nil.
func (d *database) firstUncontended() *lock {
	l, _ := seek(d.agenda, uncontendedProbe)
	return l
}

// uncontendedProbe sorts before every uncontended lock of an agenda.
var uncontendedProbe = &lock{due: minInstant, idAndFlags: flagProbe}

// databases has all databases of a table.
type databases struct {
	liveDatabases    []*database // indexed by number, up to the highest database that has had a lock
	flushedDatabases []*database // in the order of their flushes
	compared         *int        // counts the comparisons of all trees, unless it is nil
}

func (s *databases) copy() databases {
	copied := func(from []*database) (to []*database) {
		for _, d := range from {
			to = append(to, d.copy())
		}
		return to
	}
	return databases{copied(s.liveDatabases), copied(s.flushedDatabases), s.compared}
}

// database returns the live database with the number db, or nil if no lock was ever made there.
func (s *databases) database(db int) *database {
	if db < 0 || db >= len(s.liveDatabases) {
		return nil
	}
	return s.liveDatabases[db]
}

// makeDatabase returns the live database with the number db, and makes it if it is missing.
func (s *databases) makeDatabase(db int) *database {
	for len(s.liveDatabases) <= db {
		s.liveDatabases = append(s.liveDatabases, newDatabase(s.compared))
	}
	return s.liveDatabases[db]
}

// databaseOf returns the live or flushed database that stores lock l.
func (s *databases) databaseOf(l *lock) *database {
	for _, d := range s.flushedDatabases {
		if d.has(l) {
			return d
		}
	}
	return s.database(l.db())
}

// flushOf returns the flush that ended the holds of lock l, or nil if l is in a live database.
func (s *databases) flushOf(l *lock) *flush {
	if len(s.flushedDatabases) == 0 {
		return nil
	}
	return s.databaseOf(l).flush
}

// search returns the lock of a key, or nil. It searches the live database first, and then the flushed databases.
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

// peek returns the lock of a key in the live database, or nil. It changes no memory of the table, so readers may call
// it in parallel.
func (s *databases) peek(db int, key string) *lock {
	return s.database(db).search(new(lock), db, key, keyspace.Hash(key))
}

// firstFlushed returns the flushed lock that moves to the live database next, and its flushed database. Contended locks
// move first. The lock is nil if that database is empty. Both results are nil if no database is flushed.
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

// firstLock returns the live lock with the first timer, or nil if there is no such lock. Unless includeUncontended is
// set, firstLock considers only contended locks.
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

// passFields writes or reads a flushed database.
func (d *database) passFields(c *codec) {
	passInt(c, &d.flush.at, minInstant, noDeadline)
	passUint(c, &d.flush.cause, anyUint)
	passList(c, d.locks.Len(), d.locks.Scan, (*lock).passFields, func() { c.readLock(d) })
}

func (c *codec) readFlushed() {
	d := newDatabase(nil)
	d.flush, c.lastLock = &flush{}, nil
	d.passFields(c)
	first, _ := d.locks.Min()
	c.recordErr = errFlush
	c.require(first == nil || first.db() == c.lastLock.db())
	c.t.flushedDatabases = append(c.t.flushedDatabases, d)
}
