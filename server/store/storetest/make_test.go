package storetest

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/store"
	"github.com/holdfast/holdfast/server/store/internal/memdisk"
)

func full(*memdisk.Disk) error { return syscall.ENOSPC }

// TestMakeHalfWay: a restore is killed, loses power, or fills the disk, in any operation. The next process finds the
// whole state, or an empty folder, or refuses the folder. It never finds the name of the new cluster without the state.
// The folder can be made again.
func TestMakeHalfWay(t *testing.T) {
	for name, f := range map[string]fault{"killed": kills, "cut": cuts, "full": full} {
		t.Run(name, func(t *testing.T) {
			refused := 0
			for n := 1; ; n++ {
				reached := true
				synctest.Test(t, func(t *testing.T) { reached = makeWith(t, n, f, name == "full", &refused) })
				if !reached {
					require.Greater(t, n, 20)
					break
				}
			}
			require.Equal(t, name != "full", refused > 0)
		})
	}
}

// makeWith makes a folder, with f at the nth operation. It reports whether there were so many.
func makeWith(t *testing.T, n int, f fault, leaves bool, refused *int) bool {
	l := newDiskHistory(t, memdisk.New(uint64(n)))
	id := store.Identity{Name: "node", ClusterID: "new", Restored: true}
	restore := func(p *memdisk.Process) error {
		return store.MakeOn(device(p), store.Config{DataDir: dataDir}, id,
			func(s *store.Store) error {
				sink, err := s.Snapshots.Create(raft.SnapshotVersionMax, 9, 1, raft.Configuration{}, 1, nil)
				if err != nil {
					return err
				}
				if _, err := sink.Write(make([]byte, 10_000)); err != nil {
					return errors.Join(err, sink.Cancel())
				}
				return sink.Close()
			})
	}
	reached := l.meet(n, f)
	err := restore(l.files.Boot())
	synctest.Wait()
	if l.files.Running() {
		require.Zero(t, l.files.Opened(), "operation %d", n)
	}
	l.end()
	switch found := l.begin(); {
	case found != nil:
		require.ErrorContains(t, found, "is not whole", "operation %d", n)
		require.False(t, leaves, "operation %d: %v", n, err)
		*refused++
	case l.store.Identity().ClusterID == "":
		require.Equal(t, "entries 0 to 0, vote ", l.shows(), "operation %d", n)
		require.True(t, err != nil, "operation %d", n)
	default:
		require.Equal(t, "entries 0 to 0, snapshot 9 of 10000 bytes, vote , cluster new", l.shows(),
			fmt.Sprint("operation ", n))
		return *reached
	}
	l.end()
	l.epoch = 0 // it is another node's
	require.NoError(t, restore(l.files.Boot()), "operation %d: again", n)
	l.end()
	require.NoError(t, l.begin())
	require.Equal(t, "entries 0 to 0, snapshot 9 of 10000 bytes, vote , cluster new", l.shows())
	return *reached
}
