package locks

import (
	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// database has the locks of one database. A flush puts an empty database in its place. The flushed one is kept until
// its holds have been emitted as lost, and its queues have moved to the live database.
type database struct {
	locks *btree.BTreeG[*lock] // by database, hash and key
	// agenda has the locks with a queue, and after them the other locks that have a timer. Both are ordered by due.
	agenda *btree.BTreeG[*lock]
	// flush is the flush that ended the holds. Nil: the database is live.
	flush *flush
}

// flush is the end of all holds of a database.
type flush struct {
	at    int64
	cause uint64
}

func newDatabase(compared *int) *database {
	return &database{locks: newTree(lockBefore, compared), agenda: newTree(agendaBefore, compared)}
}

func (d *database) copy() *database {
	return &database{locks: d.locks.IsoCopy(), agenda: d.agenda.IsoCopy(), flush: d.flush}
}

// search returns the lock of a key, or nil. probe is memory of the caller.
func (d *database) search(probe *lock, db int, key string, hash uint64) *lock {
	if d == nil || d.locks.Len() == 0 {
		return nil
	}
	*probe = probeAt(db, hash, key)
	l, _ := d.locks.Get(probe)
	probe.text = ""
	return l
}

// has reports whether the database has this very record of a lock.
func (d *database) has(l *lock) bool {
	found, ok := d.locks.Get(l)
	return ok && found == l
}

// set stores a lock. It replaces an older record of the lock.
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

// schedule records a lock's first timer, and whether the lock has a queue.
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

// firstContended returns the lock with a queue that is due first, or nil if no lock has a queue.
func (d *database) firstContended() *lock {
	if l, ok := d.agenda.Min(); ok && l.contended() {
		return l
	}
	return nil
}

// firstUncontended returns the lock without a queue that is due first, or nil.
func (d *database) firstUncontended() *lock {
	l, _ := seek(d.agenda, uncontendedProbe)
	return l
}

// uncontendedProbe sorts before every lock without a queue.
var uncontendedProbe = &lock{due: minInstant, idAndFlags: flagProbe}

// databases has the locks of all databases.
type databases struct {
	// liveDatabases has the databases by number, up to the highest in which a lock was made. flushedDatabases has the
	// flushed ones in the order of their flushes.
	liveDatabases    []*database
	flushedDatabases []*database

	compared *int // counts comparisons, unless nil
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

// database returns the live database with a number, or nil if it was never used.
func (s *databases) database(db int) *database {
	if db < 0 || db >= len(s.liveDatabases) {
		return nil
	}
	return s.liveDatabases[db]
}

// makeDatabase returns the live database with a number, and makes it if it is missing.
func (s *databases) makeDatabase(db int) *database {
	for len(s.liveDatabases) <= db {
		s.liveDatabases = append(s.liveDatabases, newDatabase(s.compared))
	}
	return s.liveDatabases[db]
}

// databaseOf returns the database, live or flushed, that has a lock.
func (s *databases) databaseOf(l *lock) *database {
	for _, d := range s.flushedDatabases {
		if d.has(l) {
			return d
		}
	}
	return s.database(l.db())
}

// flushOf returns the flush that ended the holds of a lock, or nil if the lock is live.
func (s *databases) flushOf(l *lock) *flush {
	if len(s.flushedDatabases) == 0 {
		return nil
	}
	return s.databaseOf(l).flush
}

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

// peek returns the live lock of a key, or nil. Callers that only read use it.
func (s *databases) peek(db int, key string) *lock {
	return s.database(db).search(new(lock), db, key, keyspace.Hash(key))
}

// firstFlushed returns a flushed lock and its database. A lock with a queue comes first, then the locks of the oldest
// flush. The lock is nil if the database is empty, the database is nil if none is flushed.
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

// firstLock returns the live lock with the first timer: of all locks if includeUncontended, else of those with a queue.
// Nil: there is none.
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

// passFields passes a flushed database.
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
