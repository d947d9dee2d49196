package fsm

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
)

// keepHistory records the history of locks for a roll-back. Each change of the history calls it first.
func (c *call) keepHistory() {
	if c.Undo != nil && !c.journal.historyKept {
		c.journal.histories = append(c.journal.histories, c.st.history)
		c.journal.historyKept = true
	}
}

// noteScripts records the script cache for a roll-back. Each change of the cache calls it first. Scripts do not change
// the cache, so only the roll-back of a whole transaction restores it.
func (c *call) noteScripts() {
	if c.Undo != nil && c.journal.scripts == nil {
		before := c.st.scripts.copy()
		c.journal.scripts = &before
	}
}

// beginSavepoint begins to record changes. The caller then calls releaseSavepoint or undoTo.
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

// releaseSavepoint makes the changes since from permanent, unless from is in a transaction.
func (c *call) releaseSavepoint(from *savepoint) {
	if from.outermost {
		c.journal.reset()
		c.Undo = nil
	}
}

// wroteSince reports whether the state has changed since from.
func (c *call) wroteSince(from *savepoint) bool {
	return len(c.Undo.Changes) > from.changes || c.st.Versions != from.versions
}

// undoTo undoes all changes since from.
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

// keptChanges limits the memory that the journal keeps between requests, in changes.
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

// journal is a [Journal] that also records changes of the script cache, the lock table and the history of locks.
type journal struct {
	command.Journal
	scripts     *scriptCache // the cache before its first change, or nil
	locksKept   bool         // the journal has a copy of the lock table as of the last savepoint
	historyKept bool         // the journal has a copy of the history as of the last savepoint
	histories   []lockHistory
}

// savepoint is a position in the journal, with the counters of the state at that time. A script in a transaction has
// its own savepoint, inside of that of the transaction.
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
