package raftnode

import (
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// Until raft is through with a nomination, heartbeats wait in line behind the nomination. After that heartbeats are
// handled at once again.
func TestNominationAndHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, _, _ := newHeldLog(t, 5)
		requests, handled := make(chan raft.RPC), 0
		handler := func(raft.RPC) { handled++ }
		f := &rpcFilter{applier: &applier{}, log: log, requests: requests, configurations: newConfigurations("n1")}
		f.configurations.appended([]*raft.Log{configurationAt(1, "n1", "n2")})
		f.heartbeats.handler.Store(&handler)
		heartbeat := func() error {
			f.handle(t.Context(), &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ID: []byte("n2")}, Term: 2}, nil)
			return nil
		}
		taken := func() any {
			rpc := <-requests
			synctest.Wait()
			return rpc.Command
		}

		require.NoError(t, heartbeat())
		require.Equal(t, 1, handled)
		nominated := waits(t, func() error { f.pass(t.Context(), raft.RPC{Command: nomination()}); return nil })
		require.IsType(t, nomination(), taken())
		second := waits(t, heartbeat)
		for range 2 { // the heartbeat, and what tells the nomination's end
			require.IsType(t, &raft.AppendEntriesRequest{}, taken())
		}
		require.NoError(t, <-nominated)
		require.NoError(t, <-second)
		require.Equal(t, 1, handled)
		require.NoError(t, heartbeat())
		require.Equal(t, 2, handled)

		appends := waits(t, func() error {
			f.handle(t.Context(), &raft.AppendEntriesRequest{Term: 2, PrevLogEntry: 5, PrevLogTerm: 1}, nil)
			return nil
		})
		require.IsType(t, &raft.AppendEntriesRequest{}, taken(), "raft takes it in its turn")
		require.NoError(t, <-appends)
		require.Equal(t, 2, handled)
	})
}

// A node that may not lead says so, and raft does not hear of the nomination.
func TestNominationsThatAreRefused(t *testing.T) {
	for _, want := range []error{errNoVote, ErrQuarantined} {
		synctest.Test(t, func(t *testing.T) {
			f := &rpcFilter{applier: &applier{}, configurations: newConfigurations("n1")}
			if want == ErrQuarantined {
				f.configurations.appended([]*raft.Log{configurationAt(1, "n1", "n2")})
			}
			f.applier.quarantine.on.Store(want == ErrQuarantined)
			answer := make(chan raft.RPCResponse, 1)
			f.pass(t.Context(), raft.RPC{Command: nomination(), RespChan: answer})
			synctest.Wait()
			require.Len(t, answer, 1)
			require.ErrorIs(t, (<-answer).Error, want)
		})
	}
}
