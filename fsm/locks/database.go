package locks

import (
	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// database is the locks of one database. A flush puts another in its place: the old one is kept until the losses of
// its holds are told, and its queues have moved.
type database struct {
	locks *btree.BTreeG[*lock] // by database, hash and key
	// agenda has the locks with a queue first, then the others at which something ends: both by due.
	agenda *btree.BTreeG[*lock]
	// flush is what ended the holds; nil: they are live.
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

// search finds a lock by a probe of the caller.
func (d *database) search(probe *lock, db int, key string, hash uint64) *lock {
	if d == nil || d.locks.Len() == 0 {
		return nil
	}
	*probe = probeAt(db, hash, key)
	l, _ := d.locks.Get(probe)
	probe.text = ""
	return l
}

// has reports whether this very record is in the database.
func (d *database) has(l *lock) bool {
	found, ok := d.locks.Get(l)
	return ok && found == l
}

// set stores a lock, in the place of an older record of it.
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

// schedule notes when something is due at a lock, and whether it has a queue.
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

// scheduled reports whether the agenda has a lock.
func (l *lock) scheduled() bool { return l.due != never || l.contended() }

// firstContended is the lock with a queue at which something is due first; nil: no lock has a queue.
func (d *database) firstContended() *lock {
	if l, ok := d.agenda.Min(); ok && l.contended() {
		return l
	}
	return nil
}

// firstQuiet is the lock without a queue at which something is due first; nil: there is none.
func (d *database) firstQuiet() *lock {
	l, _ := seek(d.agenda, quietProbe)
	return l
}

// quietProbe is before every lock without a queue.
var quietProbe = &lock{due: past, head: flagProbe}

// databases are the locks of all databases.
type databases struct {
	// live are the locks by the number of the database, as far as there were any. flushed are databases that were flushed,
	// the first flushed first, whose losses are still to be told.
	live    []*database
	flushed []*database

	compared *int // counts comparisons, if it is not nil
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

// database is the live locks of a database, nil if there were none in it and those behind.
func (s *databases) database(db int) *database {
	if db < 0 || db >= len(s.live) {
		return nil
	}
	return s.live[db]
}

// makeDatabase is database, and makes what is missing.
func (s *databases) makeDatabase(db int) *database {
	for len(s.live) <= db {
		s.live = append(s.live, newDatabase(s.compared))
	}
	return s.live[db]
}

// home is the database that a lock is in: the live one, or one that was flushed.
func (s *databases) home(l *lock) *database {
	for _, d := range s.flushed {
		if d.has(l) {
			return d
		}
	}
	return s.database(l.db())
}

// flushOf is the flush that ended the holds of a lock and is still to be told; nil: there was none.
func (s *databases) flushOf(l *lock) *flush {
	if len(s.flushed) == 0 {
		return nil
	}
	return s.home(l).flush
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

// peek is the live lock of a key for what only reads.
func (s *databases) peek(db int, key string) *lock {
	return s.database(db).search(new(lock), db, key, keyspace.Hash(key))
}

// firstFlushed is a flushed lock with a queue, or any if there is none such. Without a lock the database is empty.
func (s *databases) firstFlushed() (of *database, first *lock) {
	for _, d := range s.flushed {
		if l := d.firstContended(); l != nil {
			return d, l
		}
	}
	for _, d := range s.flushed {
		l, _ := d.locks.Min()
		return d, l
	}
	return nil, nil
}

// firstLock is the live lock at which something is due first, of those with a queue, or of all. Nil: there is none.
func (s *databases) firstLock(quiet bool) (first *lock) {
	for _, d := range s.live {
		if l := d.firstContended(); l != nil && (first == nil || dueBefore(l, first)) {
			first = l
		}
		if l := d.firstQuiet(); quiet && l != nil && (first == nil || dueBefore(l, first)) {
			first = l
		}
	}
	return first
}
