package storetest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/store"
)

// TestHeldSyncsDoNotStopTime: virtual time continues while one change of the log waits for another change's sync.
func TestHeldSyncsDoNotStopTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := NewDisk()
		opened, err := disk.Open(store.Config{})
		require.NoError(t, err)
		defer disk.Crash()
		log := opened.Log
		require.NoError(t, log.StoreLogs([]*raft.Log{{Index: 1, Term: 1}, {Index: 2, Term: 1}}))
		disk.HoldSyncs()
		done := make(chan error, 2)
		go func() { done <- log.StoreLog(&raft.Log{Index: 3, Term: 1}) }()
		synctest.Wait()
		go func() { done <- log.DeleteRange(1, 1) }()
		time.Sleep(time.Second)
		require.Empty(t, done)
		disk.ReleaseSyncs()
		require.NoError(t, <-done)
		require.NoError(t, <-done)
	})
}
