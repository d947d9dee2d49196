package storetest

import (
	"io"
	"syscall"
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
	t.Cleanup(func() { _ = s.Close() })
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
		require.Equal(t, uint64(1), s.Lineage.Current()>>32)
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
		require.Error(t, <-returned)
		require.ErrorIs(t, half.Close(), ErrCrashed)
		require.ErrorIs(t, s.Stable.SetUint64([]byte("term"), 8), ErrCrashed)

		again := open(t, disk, nil)
		require.Equal(t, uint64(2), again.Lineage.Current()>>32)
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
		require.ErrorIs(t, s.Stable.SetUint64([]byte("term"), 8), ErrCrashed, "a store of a killed process stays closed")
		require.NoError(t, s.Close())
		require.NoError(t, again.Stable.SetUint64([]byte("term"), 8), "the new store works after the old one was closed")
		require.NoError(t, again.Close())
	})
}

// TestHeldSync: an entry is in memory, and not on the disk, when the process dies. The next process finds the entry,
// and syncs it.
func TestHeldSync(t *testing.T) {
	for _, cutAtOnce := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			disk := NewDisk()
			s := open(t, disk, nil)
			require.NoError(t, s.Log.StoreLog(&raft.Log{Index: 1, Term: 1}))
			disk.HoldSyncs()
			returned := make(chan error)
			go func() { returned <- s.Log.StoreLog(&raft.Log{Index: 2, Term: 1}) }()
			synctest.Wait()
			require.Empty(t, returned)
			want := uint64(2)
			if cutAtOnce {
				disk.PowerCut(0) // nothing reached the disk
				want = 1
			} else {
				disk.Crash()
			}
			require.Error(t, <-returned)
			for seed := range uint64(5) {
				last, err := open(t, disk, nil).Log.LastIndex()
				require.NoError(t, err)
				require.Equal(t, want, last)
				disk.PowerCut(seed)
			}
		})
	}
}

func TestFailedSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := NewDisk()
		s := open(t, disk, nil)
		synctest.Wait()
		require.NoError(t, s.Log.StoreLog(&raft.Log{Index: 1, Term: 1}))
		synctest.Wait()
		disk.FailSync(0)
		require.NoError(t, s.Stable.Set([]byte("k"), []byte("v")), "it is the log's sync that fails")
		require.ErrorIs(t, s.Log.StoreLog(&raft.Log{Index: 2, Term: 1}), syscall.EIO)
		require.ErrorIs(t, s.Log.StoreLog(&raft.Log{Index: 2, Term: 1}), syscall.EIO)
		require.NoError(t, open(t, disk, nil).Log.StoreLogs(nil))
	})
}
