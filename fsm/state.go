package fsm

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// sweepLimit bounds the ended keys that an entry removes before its batches. So a million leases that end together take
// two hundred entries, and each delays its batches by a millisecond or two.
const sweepLimit = 5_000

// state is everything that is replicated, and nothing else.
type state struct {
	command.Keys
	// version is the newest version of the entries applied, 0 before the first. It never falls.
	version byte
	// wallOffsetMillis is Unix time minus cluster time, by the newest entry.
	wallOffsetMillis int64
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

// raiseVersion records the version of an entry, and returns the version by which the entry is applied. That version
// never falls: a leader that was elected with entries it had not applied may append an older version to them.
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

// nextDue returns the first instant at which a key or a wait is due. While the sweep has ended keys to remove, the
// instant is past, so the leader proposes a stamp at once, and the sweep goes on.
func (st *state) nextDue() (dueMillis int64, ok bool) {
	for _, d := range st.Databases {
		if deadlineMillis, some := d.FirstDeadline(); some {
			due := command.SaturatingAdd(deadlineMillis, 1)
			if !ok || due < dueMillis {
				dueMillis, ok = due, true
			}
		}
	}
	if due, some := st.Locks.NextDue(); some && (!ok || due < dueMillis) {
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
