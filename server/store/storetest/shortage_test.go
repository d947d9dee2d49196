package storetest

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/store"
)

// filling appends entries of a quarter of a segment each, with the given indexes.
func filling(s *store.Store, from, to uint64) error {
	for i := from; i <= to; i++ {
		if err := s.Log.StoreLog(&raft.Log{Index: i, Term: 1, Data: bytes.Repeat([]byte{1}, segmentSize/4-200)}); err != nil {
			return err
		}
	}
	return nil
}

// TestShortageOfDescriptors: without free descriptors the log continues for some segments, then waits, and continues
// when there are some. If that takes too long, the watchdog reports it.
func TestShortageOfDescriptors(t *testing.T) {
	for _, ends := range []string{"shortage", "process", "store"} {
		synctest.Test(t, func(t *testing.T) {
			stalled := make(chan time.Duration, 1)
			disk := NewDisk()
			s, err := disk.Open(store.Config{Hooks: store.Hooks{
				DiskStallLimit: 4 * time.Second,
				OnStall:        func(_ store.Op, elapsed time.Duration) { stalled <- elapsed },
				OnFault:        func(op store.Op, err error) { t.Errorf("%s: %v", op, err) },
			}})
			require.NoError(t, err)
			require.NoError(t, filling(s, 1, 2))
			synctest.Wait()
			disk.files.Limit(disk.files.Opened())
			began := time.Now()
			require.NoError(t, filling(s, 3, 16))
			require.Equal(t, began, time.Now(), "three segments need no new descriptors")

			returned := make(chan error, 1)
			go func() { returned <- filling(s, 17, 60) }()
			time.Sleep(2 * time.Second)
			require.Empty(t, returned)
			if ends == "shortage" {
				disk.files.Limit(0)
				require.NoError(t, <-returned)
				require.Less(t, time.Since(began), 3*time.Second)
				last, err := s.Log.LastIndex()
				require.NoError(t, err)
				require.Equal(t, uint64(60), last)
				require.Empty(t, stalled)
				require.NoError(t, s.Close())
				opened := disk.files.Opened()
				require.Zero(t, opened, "no descriptor stays open")
				return
			}
			require.Less(t, <-stalled, 5*time.Second)
			if ends == "store" {
				require.NoError(t, s.Close(), "nothing is waited for")
			}
			disk.Crash()
			require.Error(t, <-returned)
		})
	}
}
