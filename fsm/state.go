package fsm

import (
	"math"
	"slices"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// sweepLimit is the largest number of ended keys that an entry removes. A million leases that end
// in the same instant then cost a hundred short entries, and no entry takes a second.
const sweepLimit = 10_000

// versionSweeps is the first version of the entry whose sweep is part of the log's meaning: see
// [state.sweeps].
const versionSweeps = 4

// state is everything that is replicated, and nothing else.
type state struct {
	// version is the newest version of the entries applied, 0 before the first. It never falls, and never
	// matters below versionOfCluster: see [state.enter].
	version byte
	// clockMillis is T, the cluster time: the largest stamp applied so far.
	clockMillis int64
	// wallOffsetMillis is Unix time less cluster time, by the newest entry.
	wallOffsetMillis int64
	// versions counts the items stored so far, also items that had ended at once, and the swaps of
	// databases.
	versions     uint64
	databases    [protocol.MaxDatabases]*keyspace.Keyspace
	sessions     sessions
	incarnations incarnations
	accounts     accounts
	scripts      scriptCache
	waits        *waits.Table
	locks        *locks.Table
	history      lockHistory
	// swaps are the versions at which the databases were last swapped.
	swaps   [protocol.MaxDatabases]uint64
	newKeys newKeyVersions
	// generation is counted up when items are kept: by a capture, or for a roll-back. Collections of an
	// older generation are not changed in place: see [keyspace.Object]. The number is this node's own
	// and shows nowhere.
	generation uint64
	// itemBytes is what the items of all databases count for.
	itemBytes int64
	// sweeps: which ended items are still stored is the same on all nodes, stands in snapshots, and
	// their removal is told. Before the first entry of version 4 each node swept for itself, and a
	// snapshot left the rest out.
	sweeps bool
	// notifies are the settings of notify-keyspace-events.
	notifies event.Classes
}

// nextVersion gives out a version.
func (st *state) nextVersion() uint64 {
	st.versions++
	return st.versions
}

func newState() *state {
	st := &state{scripts: newScriptCache(), waits: waits.New(), locks: locks.New()}
	for i := range st.databases {
		st.databases[i] = keyspace.New(0)
	}
	return st
}

// versionOfCluster is the first version of the entry that the state remembers, and that snapshots name.
const versionOfCluster = 6

// enter notes the version of an entry, and returns the version by whose meaning the entry is applied. From
// versionOfCluster on that is never lower than before: a leader that was elected with entries that it had not
// applied may put an older version behind them. Older versions followed one another as they came.
func (st *state) enter(version byte) byte {
	if st.version < versionOfCluster || version > st.version {
		st.version = version
	}
	return st.version
}

// meaning is the version by which reads are answered.
func (st *state) meaning() byte { return max(st.version, protocol.OldestEntryVersion) }

// advance sets the clock to stampMillis, but never back.
func (st *state) advance(stampMillis, wallOffsetMillis int64) {
	st.clockMillis = max(st.clockMillis, stampMillis)
	st.wallOffsetMillis = wallOffsetMillis
	for _, d := range st.databases {
		d.Advance(st.clockMillis)
	}
	st.sumItems()
}

// agreeOnSweeps removes all keys that had ended by the last entry, of which nodes have different rests.
func (st *state) agreeOnSweeps() {
	for _, d := range st.databases {
		d.SweepAll(st.clockMillis)
	}
	st.sweeps = true
}

// nextDue is the first instant at which some key or wait is due. While ended keys wait for the sweep this
// instant is past: the leader, which sleeps until then, proposes a stamp at once, and the sweep
// goes on.
func (st *state) nextDue() (dueMillis int64, ok bool) {
	for _, d := range st.databases {
		if deadlineMillis, some := d.FirstDeadline(); some {
			due := saturatingAdd(deadlineMillis, 1)
			if !ok || due < dueMillis {
				dueMillis, ok = due, true
			}
		}
	}
	if due, some := st.locks.NextDue(); some && (!ok || due < dueMillis) {
		dueMillis, ok = due, true
	}
	switch w := st.waits.First(); {
	case st.waits.HasReady(), st.waits.Sweeping():
		return st.clockMillis, true
	case w != nil && (!ok || saturatingAdd(w.DeadlineMillis, 1) < dueMillis):
		return saturatingAdd(w.DeadlineMillis, 1), true
	}
	return dueMillis, ok
}

// capture copies what a snapshot needs of the state, in constant time.
func (st *state) capture() *snapshot {
	st.generation++
	s := &snapshot{
		version:          st.version,
		clockMillis:      st.clockMillis,
		wallOffsetMillis: st.wallOffsetMillis,
		versions:         st.versions,
		newKeys:          st.newKeys,
		swaps:            st.swaps,
		sessions:         st.sessions.copy(),
		incarnations:     st.incarnations.copy(),
		accounts:         slices.Clone(st.accounts.users),
		scripts:          st.scripts.copy(),
		waits:            st.waits.Copy(),
		locks:            st.locks.Copy(),
		history:          st.history,
		sweeps:           st.sweeps,
		notifies:         st.notifies,
	}
	endedBefore := st.clockMillis
	if st.sweeps {
		endedBefore = math.MinInt64
	}
	for i, d := range st.databases {
		s.databases[i] = d.Capture(endedBefore)
	}
	return s
}
