package fsm

import (
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// journal notes the changes of a script or a transaction, to undo them. A change is small: items share
// their data, and databases are replaced whole.
type journal struct {
	changes []change
	newKeys []notedVersion
	// scripts is the script cache from before, if it has changed.
	scripts *scriptCache
	// locksKept: a copy of the lock table was noted since the last savepoint. historyKept: so of the history of locks.
	locksKept, historyKept bool
	histories              []lockHistory
}

// savepoint is a place in the journal, with the counters of the state at that moment. A script in a
// transaction has a savepoint of its own, behind the transaction's.
type savepoint struct {
	outermost        bool
	changes, newKeys int
	histories        int
	events           int
	swaps            [protocol.MaxDatabases]uint64
	versions         uint64
	notifies         event.Classes
	incarnations     incarnations
}

// change is the change of an item, or of a whole database.
type change struct {
	database *keyspace.Keyspace // the changed database, or the replaced one
	whole    bool
	number   int  // of the replaced database
	replaced bool // an item was there before
	before   keyspace.Item
	item     keyspace.Item // what came there where nothing was
	locks    *locks.Table  // the lock table from before, if the change is of that
}

// notedVersion is what stood in a place of [newKeyVersions].
type notedVersion struct {
	place   uint16
	version uint64
}

func (j *journal) note(ch change) { j.changes = append(j.changes, ch) }

func (j *journal) noteNewKey(place uint16, before uint64) {
	j.newKeys = append(j.newKeys, notedVersion{place, before})
}

// keepHistory is called before the history of locks changes.
func (c *call) keepHistory() {
	if c.undo != nil && !c.undo.historyKept {
		c.undo.histories = append(c.undo.histories, c.st.history)
		c.undo.historyKept = true
	}
}

// noteScripts is called before the script cache changes. No script changes the cache, only a request
// of a transaction does. So the cache is undone only as a whole.
func (c *call) noteScripts() {
	if c.undo != nil && c.undo.scripts == nil {
		before := c.st.scripts.copy()
		c.undo.scripts = &before
	}
}

// begins notes changes from now on, until ends or undoTo.
func (c *call) begins() (from savepoint) {
	if c.undo == nil {
		from.outermost = true
		c.undo = &c.journal
	}
	c.st.generation++
	c.undo.locksKept, c.undo.historyKept = false, false
	from.histories = len(c.undo.histories)
	from.changes, from.newKeys = len(c.undo.changes), len(c.undo.newKeys)
	from.versions, from.swaps = c.st.versions, c.st.swaps
	from.events, from.notifies, from.incarnations = len(c.events), c.st.notifies, c.st.incarnations.copy()
	return from
}

// ends keeps the changes since from.
func (c *call) ends(from *savepoint) {
	if from.outermost {
		c.undo.reset()
		c.undo = nil
	}
}

// wroteSince reports whether something has changed since from.
func (c *call) wroteSince(from *savepoint) bool {
	return len(c.undo.changes) > from.changes || c.st.versions != from.versions
}

// undoTo undoes all changes since from, the newest first.
func (c *call) undoTo(from *savepoint) {
	j, st := c.undo, c.st
	for i := len(j.changes) - 1; i >= from.changes; i-- {
		ch := &j.changes[i]
		switch {
		case ch.locks != nil:
			st.locks = ch.locks
		case ch.whole:
			st.databases[ch.number] = ch.database
		case ch.replaced:
			ch.database.Put(&ch.before)
		default:
			ch.database.Remove(ch.item.Hash, ch.item.Key())
		}
	}
	for i := len(j.newKeys) - 1; i >= from.newKeys; i-- {
		st.newKeys[j.newKeys[i].place] = j.newKeys[i].version
	}
	if len(j.histories) > from.histories {
		st.history = j.histories[from.histories]
		clear(j.histories[from.histories:])
		j.histories = j.histories[:from.histories]
	}
	j.locksKept, j.historyKept, c.taking = false, false, 0
	clear(j.changes[from.changes:])
	j.changes, j.newKeys = j.changes[:from.changes], j.newKeys[:from.newKeys]
	st.versions, st.swaps = from.versions, from.swaps
	c.dropSince(from.events)
	st.notifies, st.incarnations = from.notifies, from.incarnations
	if from.outermost && j.scripts != nil {
		st.scripts = *j.scripts
	}
	st.sumItems()
	c.ends(from)
}

// keptChanges is the number of changes that an empty journal keeps room for.
const keptChanges = 1 << 10

// reset empties the journal.
func (j *journal) reset() {
	if cap(j.changes) > keptChanges {
		*j = journal{}
		return
	}
	clear(j.changes)
	clear(j.histories)
	j.histories = j.histories[:0]
	j.changes, j.newKeys, j.scripts = j.changes[:0], j.newKeys[:0], nil
}
