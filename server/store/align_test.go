package store_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/store"
	"github.com/holdfast/holdfast/server/store/storetest"
)

// logs returns entries of one term.
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

// TestInstallationKeepsWhatFollows: raft empties the log after it has installed a snapshot. Entries behind the
// snapshot's end stay.
func TestInstallationKeepsWhatFollows(t *testing.T) {
	for _, row := range []struct {
		name               string
		have               []*raft.Log
		wantFirst, wantEnd uint64
	}{
		{"the log goes past it", logs(2, 1, 20), 11, 20},
		{"the log begins with its last entry", logs(2, 10, 20), 11, 20},
		{"the log ends with it", logs(2, 1, 10), 0, 0},
		{"the log ends before it", logs(2, 1, 9), 0, 0},
		{"the log has other entries there", logs(1, 1, 20), 11, 20},
		{"the log has another entry there, and ends", logs(1, 1, 10), 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, err := storetest.NewDisk().Open(store.Config{})
			require.NoError(t, err)
			require.NoError(t, s.Log.StoreLogs(row.have))
			snapshotAt(t, s, 2, 10)
			require.NoError(t, s.Log.DeleteRange(row.have[0].Index, row.have[len(row.have)-1].Index))
			requireLog(t, s, row.wantFirst, row.wantEnd)
		})
	}
}

// TestTailBehindASnapshotIsDeleted: the whole log may be a tail that another leader does not have. Its deletion is not
// taken for the installation of a snapshot, whether the log was empty when the snapshot was installed or not.
func TestTailBehindASnapshotIsDeleted(t *testing.T) {
	for _, before := range [][]*raft.Log{nil, logs(1, 1, 3), logs(1, 1, 10)} {
		s, err := storetest.NewDisk().Open(store.Config{})
		require.NoError(t, err)
		require.NoError(t, s.Log.StoreLogs(before))
		snapshotAt(t, s, 1, 10)
		if len(before) > 0 {
			require.NoError(t, s.Log.DeleteRange(1, uint64(len(before))))
		}
		for _, term := range []uint64{1, 2, 3} {
			require.NoError(t, s.Log.StoreLogs(logs(term, 11, 13)))
			require.NoError(t, s.Log.DeleteRange(11, 13))
			requireLog(t, s, 0, 0)
		}
	}
}

// TestOvertakenSnapshotFails: a snapshot that the node takes fails if the leader sends a later one meanwhile.
func TestOvertakenSnapshotFails(t *testing.T) {
	s, err := storetest.NewDisk().Open(store.Config{})
	require.NoError(t, err)
	require.NoError(t, s.Log.StoreLogs(logs(2, 1, 9)))
	own, err := s.Snapshots.Create(1, 8, 2, raft.Configuration{}, 1, nil)
	require.NoError(t, err)
	snapshotAt(t, s, 2, 10)
	require.ErrorContains(t, own.Close(), "one of a later index than 8 is there")
	require.NoError(t, s.Log.DeleteRange(1, 9))
	requireLog(t, s, 0, 0)
	list, err := s.Snapshots.List()
	require.NoError(t, err)
	require.Len(t, list, 1)
}

// meanwhile is a snapshot store that calls happens after a snapshot was written, before Close returns.
type meanwhile struct {
	raft.SnapshotStore
	happens   func()
	cancelled int
}

type meanwhileSink struct {
	raft.SnapshotSink
	of *meanwhile
}

func (m *meanwhile) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration, at uint64,
	tr raft.Transport,
) (raft.SnapshotSink, error) {
	sink, err := m.SnapshotStore.Create(version, index, term, c, at, tr)
	return meanwhileSink{SnapshotSink: sink, of: m}, err
}

func (s meanwhileSink) Close() error {
	err := s.SnapshotSink.Close()
	happens := s.of.happens
	s.of.happens = func() {}
	happens()
	return err
}

func (s meanwhileSink) Cancel() error {
	s.of.cancelled++
	return s.SnapshotSink.Cancel()
}

// TestOvertakenSnapshotIsCancelled: a snapshot that fails is cancelled, so its space is free again.
func TestOvertakenSnapshotIsCancelled(t *testing.T) {
	disk, err := storetest.NewDisk().Open(store.Config{})
	require.NoError(t, err)
	between := &meanwhile{SnapshotStore: disk.Snapshots, happens: func() {}}
	s, err := store.New(store.Parts{Log: disk.Log, Stable: disk.Stable, Snapshots: between}, store.Hooks{})
	require.NoError(t, err)
	own, err := s.Snapshots.Create(1, 8, 2, raft.Configuration{}, 1, nil)
	require.NoError(t, err)
	snapshotAt(t, s, 2, 10)
	require.Error(t, own.Close())
	require.Equal(t, 1, between.cancelled)
}

// TestSnapshotOvertakenAtItsEndFails: the later snapshot is completed while the node's own is being closed, which then
// fails.
func TestSnapshotOvertakenAtItsEndFails(t *testing.T) {
	disk, err := storetest.NewDisk().Open(store.Config{})
	require.NoError(t, err)
	between := &meanwhile{SnapshotStore: disk.Snapshots}
	s, err := store.New(store.Parts{Log: disk.Log, Stable: disk.Stable, Snapshots: between}, store.Hooks{})
	require.NoError(t, err)
	between.happens = func() { snapshotAt(t, s, 2, 10) }
	own, err := s.Snapshots.Create(1, 8, 2, raft.Configuration{}, 1, nil)
	require.NoError(t, err)
	require.ErrorContains(t, own.Close(), "one of a later index than 8 is there")
	list, err := s.Snapshots.List()
	require.NoError(t, err)
	require.Equal(t, uint64(10), list[0].Index)
	snapshotAt(t, s, 2, 10) // another one at the same index is not late
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

// TestInterruptedInstallationIsFinished: the process died after the snapshot was durable, and before the log was
// emptied. The next Open empties a log that does not continue the snapshot.
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

// unreadable is a log and a snapshot store, one call of which fails.
type unreadable struct {
	*raft.InmemStore
	raft.SnapshotStore
	fails string
}

func (u unreadable) of(call string) error {
	if u.fails == call {
		return syscall.EIO
	}
	return nil
}

func (u unreadable) FirstIndex() (uint64, error) { return 1, u.of("first") }
func (u unreadable) LastIndex() (uint64, error)  { return 9, u.of("last") }
func (u unreadable) GetLog(index uint64, log *raft.Log) error {
	*log = raft.Log{Index: index, Term: 1}
	return u.of("get")
}
func (u unreadable) DeleteRange(uint64, uint64) error { return u.of("delete") }
func (u unreadable) List() ([]*raft.SnapshotMeta, error) {
	term := uint64(1)
	if u.fails == "delete" {
		term = 2 // another entry
	}
	return []*raft.SnapshotMeta{{Index: 5, Term: term}}, u.of("list")
}

// TestSnapshotBesideUnreadableOnes: a snapshot is not begun if the others cannot be listed, since a later one may
// exist.
func TestSnapshotBesideUnreadableOnes(t *testing.T) {
	u := &unreadable{SnapshotStore: raft.NewDiscardSnapshotStore()}
	s, err := store.New(store.Parts{Log: u, Snapshots: u}, store.Hooks{})
	require.NoError(t, err)
	u.fails = "list"
	_, err = s.Snapshots.Create(1, 6, 1, raft.Configuration{}, 1, nil)
	require.ErrorIs(t, err, syscall.EIO)
}

// TestUnreadableStores: New fails if the log and the snapshots cannot be compared.
func TestUnreadableStores(t *testing.T) {
	for _, call := range []string{"first", "last", "get", "delete", "list", ""} {
		u := unreadable{fails: call}
		_, err := store.New(store.Parts{Log: u, Snapshots: u}, store.Hooks{})
		require.Equal(t, call != "", errors.Is(err, syscall.EIO), call)
	}
}
