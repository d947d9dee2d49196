package fsm

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// sweepLimit limits the expired keys that an entry removes before its batches. The removal takes one or two
// milliseconds. So the removal of a million keys that expire together takes two hundred entries.
const sweepLimit = 5_000

// state is the replicated state.
type state struct {
	command.Keys
	version          byte  // the newest version of the applied entries, or 0 before the first entry
	wallOffsetMillis int64 // Unix time minus cluster time, as of the newest entry
	sessions         sessions
	incarnations     incarnations
	accounts         accounts
	scripts          scriptCache
	history          lockHistory
}

func newState() *state {
	st := &state{scripts: newScriptCache()}
	st.Waits, st.Locks = waits.New(), locks.New()
	for i := range st.Databases {
		st.Databases[i] = keyspace.New(0)
	}
	return st
}

// raiseVersion records the version of an entry, and returns the version by which the entry is applied. An entry may
// have an older version than the one before, if its leader had not applied that one yet. It is then applied by the
// newer version.
func (st *state) raiseVersion(version byte) byte {
	st.version = max(st.version, version)
	return st.version
}

// readVersion returns the version by which reads run.
func (st *state) readVersion() byte { return max(st.version, protocol.OldestEntryVersion) }

// advance sets the clock to stampMillis, but never back.
func (st *state) advance(stampMillis, wallOffsetMillis int64) {
	st.ClockMillis = max(st.ClockMillis, stampMillis)
	st.wallOffsetMillis = wallOffsetMillis
	for _, d := range st.Databases {
		d.Advance(st.ClockMillis)
	}
	st.sumItems()
}

// nextDue returns the first instant at which a key or a wait is due. While expired keys remain, the instant is in the
// past. The leader then proposes a stamp at once, and the sweep continues.
func (st *state) nextDue() (dueMillis int64, ok bool) {
	for _, d := range st.Databases {
		if deadlineMillis, exists := d.FirstDeadline(); exists {
			due := command.SaturatingAdd(deadlineMillis, 1)
			if !ok || due < dueMillis {
				dueMillis, ok = due, true
			}
		}
	}
	if due, exists := st.Locks.NextDue(); exists && (!ok || due < dueMillis) {
		dueMillis, ok = due, true
	}
	switch w := st.Waits.First(); {
	case st.Waits.HasReady(), st.Waits.Sweeping():
		return st.ClockMillis, true
	case w != nil && (!ok || command.SaturatingAdd(w.DeadlineMillis, 1) < dueMillis):
		return command.SaturatingAdd(w.DeadlineMillis, 1), true
	}
	return dueMillis, ok
}

// sumItems counts the memory of the items of all databases.
func (st *state) sumItems() {
	st.ItemBytes = 0
	for _, d := range st.Databases {
		st.ItemBytes += d.Bytes()
	}
}
