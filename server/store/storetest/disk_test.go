package storetest

import (
	"io"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/store"
)

func open(t *testing.T, d *Disk, f *store.Faults) *store.Store {
	t.Helper()
	s, err := d.Open(store.Config{Hooks: store.Hooks{Faults: f}})
	require.NoError(t, err)
	return s
}

func snap(t *testing.T, s *store.Store, index uint64, text string) raft.SnapshotSink {
	t.Helper()
	sink, err := s.Snapshots.Create(1, index, 1, raft.Configuration{}, 1, nil)
	require.NoError(t, err)
	_, err = io.WriteString(sink, text)
	require.NoError(t, err)
	return sink
}

func TestDiskKeepsWhatWasAcknowledgedAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, faults := NewDisk(), store.NewFaults()
		s := open(t, disk, faults)
		require.Equal(t, uint64(1), s.Epoch)
		require.NoError(t, s.Log.StoreLogs([]*raft.Log{{Index: 1, Term: 1}, {Index: 2, Term: 1}}))
		require.NoError(t, s.Stable.SetUint64([]byte("term"), 7))
		require.NoError(t, snap(t, s, 1, "whole").Close())
		half := snap(t, s, 2, "half")
		faults.Inject(store.Fault{Op: store.OpStoreLogs, Hang: true})
		returned := make(chan error)
		go func() { returned <- s.Log.StoreLog(&raft.Log{Index: 3}) }()
		synctest.Wait()
		disk.Crash()
		faults.Clear()
		require.ErrorIs(t, <-returned, ErrCrashed)
		require.ErrorIs(t, half.Close(), ErrCrashed)
		require.ErrorIs(t, s.Stable.SetUint64([]byte("term"), 8), ErrCrashed)

		again := open(t, disk, nil)
		require.Equal(t, uint64(2), again.Epoch)
		last, err := again.Log.LastIndex()
		require.NoError(t, err)
		require.Equal(t, uint64(2), last)
		term, err := again.Stable.GetUint64([]byte("term"))
		require.NoError(t, err)
		require.Equal(t, uint64(7), term)
		list, err := again.Snapshots.List()
		require.NoError(t, err)
		require.Len(t, list, 1)
		meta, r, err := again.Snapshots.Open(list[0].ID)
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, "whole", string(data))
		require.Equal(t, int64(5), meta.Size)
		require.ErrorIs(t, s.Stable.SetUint64([]byte("term"), 8), ErrCrashed, "the old life stays dead")
		require.NoError(t, s.Close())
		require.NoError(t, again.Stable.SetUint64([]byte("term"), 8), "and closing it does not harm the new one")
		require.NoError(t, again.Close())
	})
}

func TestLogIsAsStrictAsARealOne(t *testing.T) {
	disk := NewDisk()
	s := open(t, disk, nil)
	require.NoError(t, s.Log.StoreLogs([]*raft.Log{{Index: 5}, {Index: 6}, {Index: 7}, {Index: 8}}))
	require.ErrorContains(t, s.Log.StoreLog(&raft.Log{Index: 10}), "gap")
	require.ErrorContains(t, s.Log.StoreLog(&raft.Log{Index: 8}), "tail")
	require.ErrorContains(t, s.Log.DeleteRange(6, 7), "neither")
	require.NoError(t, s.Log.DeleteRange(1, 4))
	require.NoError(t, s.Log.DeleteRange(8, 100))
	require.NoError(t, s.Log.DeleteRange(1, 5))
	first, err := s.Log.FirstIndex()
	require.NoError(t, err)
	require.Equal(t, uint64(6), first)
	require.Equal(t, 2, disk.Entries())
	disk.LoseTail(1)
	last, err := s.Log.LastIndex()
	require.NoError(t, err)
	require.Equal(t, uint64(6), last)
	require.NoError(t, s.Log.DeleteRange(6, 6))
	require.NoError(t, s.Log.StoreLog(&raft.Log{Index: 100}), "an empty log begins anywhere")
}

func TestOldSnapshotsGo(t *testing.T) {
	s := open(t, NewDisk(), nil)
	for i := range 5 {
		require.NoError(t, snap(t, s, uint64(10+i), "x").Close())
	}
	cancelled := snap(t, s, 99, "x")
	require.NoError(t, cancelled.Cancel())
	require.NoError(t, cancelled.Close())
	list, err := s.Snapshots.List()
	require.NoError(t, err)
	require.Len(t, list, retained)
	require.Equal(t, uint64(14), list[0].Index, "the newest is first")
	_, _, err = s.Snapshots.Open("1-10-1")
	require.Error(t, err)
}
