package fsm

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// journal notes what a script or a transaction changes, so that it can be undone. Items share their
// data and databases are replaced whole, so a change is small.
type journal struct {
	changes   []change
	creations []noted
	// scripts is the cache of scripts as it was at the beginning, if it has changed.
	scripts *scriptCache
}

// savepoint is a place in the journal, and what the state counted then. That of a script in a
// transaction stands behind the transaction's.
type savepoint struct {
	outermost          bool
	changes, creations int
	swaps              [protocol.MaxDatabases]uint64
	versions           uint64
}

// change is an item's, or a database's in its whole.
type change struct {
	database *keyspace.Keyspace // the changed one, or the one that was replaced
	whole    bool
	number   int  // of the database that was replaced whole
	replaced bool // an item was there before
	before   keyspace.Item
	item     keyspace.Item // what came there where nothing was
}

// noted is what stood in a place of [creations].
type noted struct {
	place   uint16
	version uint64
}

func (j *journal) note(ch change) { j.changes = append(j.changes, ch) }

func (j *journal) noteCreation(place uint16, before uint64) {
	j.creations = append(j.creations, noted{place, before})
}

// noteScripts is called before the cache of scripts changes. No script can change it: it
// changes in a transaction at most, and so is undone only as a whole.
func (c *call) noteScripts() {
	if c.undo != nil && c.undo.scripts == nil {
		before := c.st.scripts.copy()
		c.undo.scripts = &before
	}
}

// begins has changes noted from now on, until ends or undoTo.
func (c *call) begins() (from savepoint) {
	if c.undo == nil {
		from.outermost = true
		c.undo = &c.journal
	}
	from.changes, from.creations = len(c.undo.changes), len(c.undo.creations)
	from.versions, from.swaps = c.st.versions, c.st.swaps
	return from
}

// ends keeps what was changed.
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
		case ch.whole:
			st.databases[ch.number] = ch.database
		case ch.replaced:
			ch.database.Put(&ch.before)
		default:
			ch.database.Remove(ch.item.Hash, ch.item.Key())
		}
	}
	for i := len(j.creations) - 1; i >= from.creations; i-- {
		st.creations[j.creations[i].place] = j.creations[i].version
	}
	clear(j.changes[from.changes:])
	j.changes, j.creations = j.changes[:from.changes], j.creations[:from.creations]
	st.versions, st.swaps = from.versions, from.swaps
	if from.outermost && j.scripts != nil {
		st.scripts = *j.scripts
	}
	st.sumItems()
	c.ends(from)
}

// keptChanges is how many changes a journal keeps room for.
const keptChanges = 1 << 10

// reset empties the journal.
func (j *journal) reset() {
	if cap(j.changes) > keptChanges {
		*j = journal{}
		return
	}
	clear(j.changes)
	j.changes, j.creations, j.scripts = j.changes[:0], j.creations[:0], nil
}
