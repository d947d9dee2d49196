package locks

import (
	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// database has the locks of one database. A flush puts an empty one in its place; the flushed one is kept until each of
// its holds has been emitted as lost, and its queues have moved to the live one.
type database struct {
	locks *btree.BTreeG[*lock] // by database, hash and key
	// agenda has the locks with a queue first, then other locks at which something ends: both by due.
	agenda *btree.BTreeG[*lock]
	// flush ended the holds; nil: the database is live.
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

// search returns the lock of a key, or nil. The probe is memory of the caller.
func (d *database) search(probe *lock, db int, key string, hash uint64) *lock {
	if d == nil || d.locks.Len() == 0 {
		return nil
	}
	*probe = probeAt(db, hash, key)
	l, _ := d.locks.Get(probe)
	probe.text = ""
	return l
}

// has reports whether the database has this very record.
func (d *database) has(l *lock) bool {
	found, ok := d.locks.Get(l)
	return ok && found == l
}

// set stores a lock, and replaces an older record of it.
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

// schedule records when something is due at a lock, and whether the lock has a queue.
func (d *database) schedule(l *lock, due int64, contended bool) {
	if l.due == due && l.contended() == contended {
		return
	}
	if l.scheduled() {
		d.agenda.Delete(l)
	}
	l.due = due
	l.head &^= flagContended
	if contended {
		l.head |= flagContended
	}
	if l.scheduled() {
		d.agenda.Set(l)
	}
}

// scheduled reports whether the lock is on the agenda.
func (l *lock) scheduled() bool { return l.due != never || l.contended() }

// firstContended returns the lock with a queue that is due first, or nil if no lock has a queue.
func (d *database) firstContended() *lock {
	if l, ok := d.agenda.Min(); ok && l.contended() {
		return l
	}
	return nil
}

// firstQuiet returns the lock without a queue that is due first, or nil.
func (d *database) firstQuiet() *lock {
	l, _ := seek(d.agenda, quietProbe)
	return l
}

// quietProbe sorts before every lock without a queue.
var quietProbe = &lock{due: past, head: flagProbe}

// databases are the locks of all databases.
type databases struct {
	// live has the databases by number, as far as there were locks. flushed has databases that were flushed, in the order
	// of the flushes, until they are empty.
	live    []*database
	flushed []*database

	compared *int // counts comparisons, unless nil
}

func (s *databases) copy() databases {
	copied := func(from []*database) (to []*database) {
		for _, d := range from {
			to = append(to, d.copy())
		}
		return to
	}
	return databases{live: copied(s.live), flushed: copied(s.flushed), compared: s.compared}
}

// database returns a database, or nil if no lock was ever made in it or in one with a higher number.
func (s *databases) database(db int) *database {
	if db < 0 || db >= len(s.live) {
		return nil
	}
	return s.live[db]
}

// makeDatabase is database, and makes missing ones.
func (s *databases) makeDatabase(db int) *database {
	for len(s.live) <= db {
		s.live = append(s.live, newDatabase(s.compared))
	}
	return s.live[db]
}

// databaseOf returns the database that has a lock: the live one, or a flushed one.
func (s *databases) databaseOf(l *lock) *database {
	for _, d := range s.flushed {
		if d.has(l) {
			return d
		}
	}
	return s.database(l.db())
}

// flushOf returns the flush that ended the holds of a lock, if they are not removed yet, or nil.
func (s *databases) flushOf(l *lock) *flush {
	if len(s.flushed) == 0 {
		return nil
	}
	return s.databaseOf(l).flush
}

func (s *databases) search(probe *lock, db int, key string, hash uint64) *lock {
	if l := s.database(db).search(probe, db, key, hash); l != nil {
		return l
	}
	for _, d := range s.flushed {
		if l := d.search(probe, db, key, hash); l != nil {
			return l
		}
	}
	return nil
}

// peek returns the live lock of a key, or nil, for callers that only read.
func (s *databases) peek(db int, key string) *lock {
	return s.database(db).search(new(lock), db, key, keyspace.Hash(key))
}

// firstFlushed returns a flushed lock with a queue, or else one of the oldest flush, and its database. Without a lock
// that database is empty. Without a database none is flushed.
func (s *databases) firstFlushed() (of *database, first *lock) {
	for _, d := range s.flushed {
		if l := d.firstContended(); l != nil {
			return d, l
		}
	}
	if len(s.flushed) == 0 {
		return nil, nil
	}
	of = s.flushed[0]
	first, _ = of.locks.Min()
	return of, first
}

// firstLock returns the live lock that is due first: among all locks if quiet, else among those with a queue.
// Nil: there is none.
func (s *databases) firstLock(quiet bool) (first *lock) {
	for _, d := range s.live {
		if d.agenda.Len() == 0 {
			continue
		}
		if l := d.firstContended(); l != nil && (first == nil || dueBefore(l, first)) {
			first = l
		}
		if l := d.firstQuiet(); quiet && l != nil && (first == nil || dueBefore(l, first)) {
			first = l
		}
	}
	return first
}
