package fsm

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
)

// keepHistory is called before the history of locks changes.
func (c *call) keepHistory() {
	if c.Undo != nil && !c.journal.historyKept {
		c.journal.histories = append(c.journal.histories, c.st.history)
		c.journal.historyKept = true
	}
}

// noteScripts is called before the script cache changes. Only a request of a transaction changes the cache, no script
// does, so the cache is undone as a whole.
func (c *call) noteScripts() {
	if c.Undo != nil && c.journal.scripts == nil {
		before := c.st.scripts.copy()
		c.journal.scripts = &before
	}
}

// beginSavepoint records the following changes, until releaseSavepoint or undoTo.
func (c *call) beginSavepoint() (from savepoint) {
	if c.Undo == nil {
		from.outermost = true
		c.Undo = &c.journal.Journal
	}
	c.st.Generation++
	c.journal.locksKept, c.journal.historyKept = false, false
	from.histories = len(c.journal.histories)
	from.changes, from.newKeys = len(c.Undo.Changes), len(c.Undo.NewKeys)
	from.versions, from.swaps = c.st.Versions, c.st.Swaps
	from.events, from.lockChanges = len(c.Events), len(c.LockChanges)
	from.notifies, from.incarnations = c.st.Notifies, c.st.incarnations.copy()
	return from
}

// releaseSavepoint keeps the changes since from.
func (c *call) releaseSavepoint(from *savepoint) {
	if from.outermost {
		c.journal.reset()
		c.Undo = nil
	}
}

// wroteSince reports whether something has changed since from.
func (c *call) wroteSince(from *savepoint) bool {
	return len(c.Undo.Changes) > from.changes || c.st.Versions != from.versions
}

// undoTo undoes all changes since from, the newest first.
func (c *call) undoTo(from *savepoint) {
	j, st := &c.journal, c.st
	for i := len(j.Changes) - 1; i >= from.changes; i-- {
		ch := &j.Changes[i]
		switch {
		case ch.Locks != nil:
			st.Locks = ch.Locks
		case ch.Whole:
			st.Databases[ch.Number] = ch.Database
		case ch.Replaced:
			ch.Database.Put(&ch.Before)
		default:
			ch.Database.Remove(ch.Item.Hash, ch.Item.Key())
		}
	}
	for i := len(j.NewKeys) - 1; i >= from.newKeys; i-- {
		st.NewKeys[j.NewKeys[i].Place] = j.NewKeys[i].Version
	}
	if len(j.histories) > from.histories {
		st.history = j.histories[from.histories]
		clear(j.histories[from.histories:])
		j.histories = j.histories[:from.histories]
	}
	j.locksKept, j.historyKept, c.stockCauseID = false, false, 0
	clear(j.Changes[from.changes:])
	j.Changes, j.NewKeys = j.Changes[:from.changes], j.NewKeys[:from.newKeys]
	st.Versions, st.Swaps = from.versions, from.swaps
	c.dropSince(from.events, from.lockChanges)
	st.Notifies, st.incarnations = from.notifies, from.incarnations
	if from.outermost && j.scripts != nil {
		st.scripts = *j.scripts
	}
	st.sumItems()
	c.releaseSavepoint(from)
}

// keptChanges bounds the changes that an empty journal keeps memory for.
const keptChanges = 1 << 10

// reset empties the journal.
func (j *journal) reset() {
	if cap(j.Changes) > keptChanges {
		*j = journal{}
		return
	}
	clear(j.Changes)
	clear(j.histories)
	j.histories = j.histories[:0]
	j.Changes, j.NewKeys, j.scripts = j.Changes[:0], j.NewKeys[:0], nil
}

// journal is a [Journal] with the parts of the state that are no keys.
type journal struct {
	command.Journal
	// scripts is the script cache before the changes, if it has changed.
	scripts *scriptCache
	// locksKept: the journal has a copy of the lock table since the last savepoint. historyKept: so it has of the history.
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
	lockChanges      int
	swaps            [protocol.MaxDatabases]uint64
	versions         uint64
	notifies         event.Classes
	incarnations     incarnations
}
