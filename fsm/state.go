package fsm

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// sweepLimit is the largest number of ended keys that an entry removes. A million leases that end
// in the same instant then cost a hundred short entries, and no entry takes a second.
const sweepLimit = 10_000

// state is everything that is replicated, and nothing else.
type state struct {
	command.Keys
	// version is the newest version of the entries applied, 0 before the first. It never falls.
	version byte
	// wallOffsetMillis is Unix time less cluster time, by the newest entry.
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

// enter notes the version of an entry, and returns the version by whose meaning the entry is applied. That
// is never lower than before: a leader that was elected with entries that it had not applied may put an older version
// behind them.
func (st *state) enter(version byte) byte {
	st.version = max(st.version, version)
	return st.version
}

// meaning is the version by which reads are answered.
func (st *state) meaning() byte { return max(st.version, protocol.OldestEntryVersion) }

// advance sets the clock to stampMillis, but never back.
func (st *state) advance(stampMillis, wallOffsetMillis int64) {
	st.ClockMillis = max(st.ClockMillis, stampMillis)
	st.wallOffsetMillis = wallOffsetMillis
	for _, d := range st.Databases {
		d.Advance(st.ClockMillis)
	}
	st.sumItems()
}

// nextDue is the first instant at which some key or wait is due. While ended keys wait for the sweep this
// instant is past: the leader, which sleeps until then, proposes a stamp at once, and the sweep
// goes on.
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

// sumItems counts what the items of all databases take.
func (st *state) sumItems() {
	st.ItemBytes = 0
	for _, d := range st.Databases {
		st.ItemBytes += d.Bytes()
	}
}
