package store_test

import (
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/store"
	"github.com/holdfast/holdfast/server/store/storetest"
)

// logs are entries of one term.
func logs(term, from, to uint64) []*raft.Log {
	var list []*raft.Log
	for i := from; i <= to; i++ {
		list = append(list, &raft.Log{Index: i, Term: term})
	}
	return list
}

func snapshotAt(t *testing.T, s *store.Store, term, index uint64) {
	t.Helper()
	sink, err := s.Snapshots.Create(1, index, term, raft.Configuration{}, 1, nil)
	require.NoError(t, err)
	require.NoError(t, sink.Close())
}

func requireLog(t *testing.T, s *store.Store, first, last uint64) {
	t.Helper()
	got, err := s.Log.FirstIndex()
	require.NoError(t, err)
	require.Equal(t, first, got)
	got, err = s.Log.LastIndex()
	require.NoError(t, err)
	require.Equal(t, last, got)
}

// TestLateSnapshotTakesNothingBack: raft empties the log after it has installed
// a snapshot. What follows the snapshot's end in the same history stays.
func TestLateSnapshotTakesNothingBack(t *testing.T) {
	for _, row := range []struct {
		name               string
		have               []*raft.Log
		term, index        uint64 // of the snapshot
		wantFirst, wantEnd uint64
	}{
		{"the log goes past it", logs(2, 1, 20), 2, 10, 11, 20},
		{"the log ends with it", logs(2, 1, 10), 2, 10, 0, 0},
		{"the log follows it", logs(2, 11, 20), 2, 10, 11, 20},
		{"the log ends before it", logs(2, 1, 9), 2, 10, 0, 0},
		{"the log has another entry there", logs(1, 1, 20), 2, 10, 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, err := storetest.NewDisk().Open(store.Config{})
			require.NoError(t, err)
			require.NoError(t, s.Log.StoreLogs(row.have))
			snapshotAt(t, s, row.term, row.index)
			require.NoError(t, s.Log.DeleteRange(row.have[0].Index, row.have[len(row.have)-1].Index))
			requireLog(t, s, row.wantFirst, row.wantEnd)
		})
	}
}

func TestOtherDeletionsPass(t *testing.T) {
	s, err := storetest.NewDisk().Open(store.Config{})
	require.NoError(t, err)
	require.NoError(t, s.Log.StoreLogs(logs(2, 1, 20)))
	snapshotAt(t, s, 2, 10)
	require.NoError(t, s.Log.DeleteRange(1, 7))
	requireLog(t, s, 8, 20)
	require.NoError(t, s.Log.DeleteRange(12, 20))
	requireLog(t, s, 8, 11)
}

func TestSnapshotOlderThanTheNewestIsRefused(t *testing.T) {
	s, err := storetest.NewDisk().Open(store.Config{})
	require.NoError(t, err)
	snapshotAt(t, s, 2, 10)
	_, err = s.Snapshots.Create(1, 9, 2, raft.Configuration{}, 1, nil)
	require.ErrorContains(t, err, "one of a later index than 9 is there")
	snapshotAt(t, s, 2, 10)
}

// TestInterruptedInstallationIsFinished: the process died after the snapshot was
// durable, and before the log was emptied.
func TestInterruptedInstallationIsFinished(t *testing.T) {
	for _, row := range []struct {
		name               string
		have               []*raft.Log
		wantFirst, wantEnd uint64
	}{
		{"the log ends before it", logs(2, 1, 9), 0, 0},
		{"the log has another entry there", logs(1, 1, 20), 0, 0},
		{"the log goes past it", logs(2, 5, 20), 5, 20},
		{"the log follows it", logs(2, 11, 20), 11, 20},
	} {
		t.Run(row.name, func(t *testing.T) {
			disk := storetest.NewDisk()
			s, err := disk.Open(store.Config{})
			require.NoError(t, err)
			require.NoError(t, s.Log.StoreLogs(row.have))
			snapshotAt(t, s, 2, 10)
			disk.Crash()
			s, err = disk.Open(store.Config{})
			require.NoError(t, err)
			requireLog(t, s, row.wantFirst, row.wantEnd)
			next := max(10, row.wantEnd) + 1
			require.NoError(t, s.Log.StoreLogs(logs(3, next, next)))
		})
	}
}
