package raftnode

import (
	"errors"
	"io"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// A deletion is of entries that a snapshot has, or of a tail that is not committed: any other ends the node, and
// deletes nothing.
func TestCommittedEntriesAreNotDeleted(t *testing.T) {
	for name, row := range map[string]struct {
		lo, hi              uint64
		committed, snapshot uint64
		refused             bool
	}{
		"a tail":                                {lo: 8, hi: 10, committed: 7},
		"a tail right behind the snapshot":      {lo: 6, hi: 10, committed: 5, snapshot: 5},
		"the whole log, none known committed":   {lo: 3, hi: 10},
		"what a snapshot has":                   {lo: 3, hi: 5, committed: 9, snapshot: 6},
		"the log, when a snapshot is installed": {lo: 3, hi: 10, committed: 12, snapshot: 12},
		"what a snapshot has, in part gone":     {lo: 2, hi: 5, committed: 9, snapshot: 6},
		"the newest committed entry":            {lo: 7, hi: 10, committed: 7, refused: true},
		"the first behind the snapshot":         {lo: 3, hi: 10, committed: 3, snapshot: 2, refused: true},
		"entries within the snapshot":           {lo: 4, hi: 10, committed: 6, snapshot: 6, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			store := raft.NewInmemStore()
			for i := uint64(3); i <= 10; i++ {
				require.NoError(t, store.StoreLog(&raft.Log{Index: i}))
			}
			var failed error
			log := newParallelLog(store, 256<<20, func(err error) { failed = err })
			bounds := func() (uint64, uint64, error) { return row.committed, row.snapshot, nil }
			log.bounds.Store(&bounds)
			err := log.DeleteRange(row.lo, row.hi)
			var read raft.Log
			if !row.refused {
				require.NoError(t, err)
				require.NoError(t, failed)
				require.ErrorIs(t, store.GetLog(row.hi, &read), raft.ErrLogNotFound)
				return
			}
			require.ErrorContains(t, failed, "are committed")
			require.Equal(t, failed, err)
			require.NoError(t, store.GetLog(row.lo, &read))
			require.Equal(t, failed, log.StoreLog(&raft.Log{Index: 11}), "the log takes no more")
		})
	}
}

// stateless is a state machine without a state.
type stateless struct{}

func (stateless) Apply(*raft.Log) any                 { return nil }
func (stateless) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.ErrUnsupported }
func (stateless) Restore(r io.ReadCloser) error       { return r.Close() }

// What a snapshot stands for is committed, also before a leader has told how far the log is.
func TestSnapshotCountsAsCommitted(t *testing.T) {
	store, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
	address, transport := raft.NewInmemTransport("n1")
	conf := raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: address}, {ID: "n2", Address: "n2"}}}
	sink, err := snapshots.Create(raft.SnapshotVersionMax, 10, 3, conf, 1, transport)
	require.NoError(t, err)
	require.NoError(t, sink.Close())
	config := raft.DefaultConfig()
	config.LocalID, config.Logger = "n1", hclog.NewNullLogger()
	opened, err := raft.NewRaft(config, stateless{}, store, store, snapshots, transport)
	require.NoError(t, err)
	n := &Node{raft: opened, config: Config{Snapshots: snapshots}}
	committed, snapshot, err := n.bounds()
	require.NoError(t, opened.Shutdown().Error())
	require.NoError(t, err)
	require.Equal(t, uint64(10), committed)
	require.Equal(t, uint64(10), snapshot)
}

// Where the newest snapshot ends is not known: nothing is deleted, and that is no reason to end.
func TestNothingIsDeletedUnknowing(t *testing.T) {
	store := raft.NewInmemStore()
	require.NoError(t, store.StoreLog(&raft.Log{Index: 1}))
	log := newParallelLog(store, 256<<20, func(error) { require.Fail(t, "it ended") })
	broken := errors.New("broken")
	bounds := func() (uint64, uint64, error) { return 1, 0, broken }
	log.bounds.Store(&bounds)
	require.ErrorIs(t, log.DeleteRange(1, 1), broken)
	require.NoError(t, store.GetLog(1, &raft.Log{}))
}

// A leader that has another entry than the snapshot at the snapshot's end, in its entries or before them, ends the
// node. A leader of the past is no leader, and one that does not speak of that entry says nothing against it.
func TestSnapshotIsNotContradicted(t *testing.T) {
	const current = 7
	end := &raft.SnapshotMeta{Index: 10, Term: 5}
	for name, row := range map[string]struct {
		term, prev, prevTerm uint64
		entries              []*raft.Log
		refused              bool
	}{
		"before, the same": {term: 7, prev: 10, prevTerm: 5, entries: []*raft.Log{{Index: 11, Term: 6}}},
		"among them, the same": {term: 7, prev: 8, prevTerm: 4, entries: []*raft.Log{
			{Index: 9, Term: 4},
			{Index: 10, Term: 5},
		}},
		"neither":           {term: 7, prev: 7, prevTerm: 4, entries: []*raft.Log{{Index: 8, Term: 4}}},
		"a former leader's": {term: 6, prev: 10, prevTerm: 6},
		"before, another":   {term: 7, prev: 10, prevTerm: 6, refused: true},
		"among them, another": {term: 7, prev: 8, prevTerm: 4, entries: []*raft.Log{
			{Index: 9, Term: 4},
			{Index: 10, Term: 6},
		}, refused: true},
		"a newer leader's another": {term: 8, prev: 10, prevTerm: 6, refused: true},
	} {
		var failed error
		log := newParallelLog(raft.NewInmemStore(), 256<<20, func(err error) { failed = err })
		err := log.contradicted(&raft.AppendEntriesRequest{
			Term: row.term, PrevLogEntry: row.prev, PrevLogTerm: row.prevTerm,
			Entries: row.entries,
		}, end, current)
		require.Equal(t, row.refused, err != nil, name)
		require.Equal(t, failed, err, name)
	}
}
