package raftnode

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/invariant"
)

// TestSettingsOfRaft: raft gets the owner's settings, except those that this package's promises need.
func TestSettingsOfRaft(t *testing.T) {
	c := Config{
		ID: "n1", RaftLogger: hclog.NewNullLogger(),
		Timing: Timing{
			HeartbeatTimeout: 11 * time.Second, ElectionTimeout: 12 * time.Second, LeaseTimeout: 13 * time.Second,
			CommitTimeout: 14 * time.Second,
		},
		SnapshotPolicy: SnapshotPolicy{SnapshotThreshold: 15, SnapshotInterval: 16 * time.Second, TrailingLogs: 17},
	}
	want := raft.DefaultConfig()
	want.LocalID, want.Logger = "n1", c.RaftLogger
	want.HeartbeatTimeout, want.ElectionTimeout = 11*time.Second, 12*time.Second
	want.LeaderLeaseTimeout, want.CommitTimeout = 13*time.Second, 14*time.Second
	want.SnapshotThreshold, want.SnapshotInterval, want.TrailingLogs = 15, 16*time.Second, 17
	want.MaxAppendEntries, want.ShutdownOnRemove, want.NoLegacyTelemetry = maxAppend, false, true
	require.Equal(t, want, c.raft())
}

// panicking is a log whose LastIndex panics.
type panicking struct {
	raft.LogStore
	with any
}

func (p panicking) LastIndex() (uint64, error) { panic(p.with) }

// TestRaftThatPanics: if raft panics with an error of a store while it is opened, newRaft returns the error. Other
// panics pass.
func TestRaftThatPanics(t *testing.T) {
	open := func(with any) error {
		store := raft.NewInmemStore()
		_, transport := raft.NewInmemTransport("")
		conf := raft.DefaultConfig()
		conf.LocalID, conf.Logger = "n1", hclog.NewNullLogger()
		_, err := newRaft(conf, parts{
			machine: stateless{}, log: panicking{store, with}, stable: store, snapshots: raft.NewInmemSnapshotStore(),
			transport: transport,
		})
		return err
	}
	require.Equal(t, errBroken, open(errBroken))
	require.PanicsWithValue(t, "a mistake", func() { _ = open("a mistake") })
	var none map[string]int
	require.Panics(t, func() {
		defer func() {
			failed := recover()
			require.Error(t, failed.(error))
			_ = open(failed)
		}()
		none["a"] = 1
	})
}

// TestChangesAreReported: OnChange is called for each change of raft's role or leader.
func TestChangesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t, "n2", "n3")
		n.start()
		answer := make(chan raft.RPCResponse, 1)
		n.filter.pass(t.Context(), raft.RPC{RespChan: answer, Command: &raft.AppendEntriesRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("n2"), Addr: []byte("n2")}, Term: 5,
		}})
		require.NoError(t, (<-answer).Error)
		synctest.Wait()
		require.EqualValues(t, 1, n.changed.Load(), "there is a leader")
		for n.raft.State() != raft.Candidate {
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		require.EqualValues(t, 3, n.changed.Load(), "there is none, and this node stands for election")
	})
}

// TestStartThatFails: Open returns the error that raft found, and leaves nothing open.
func TestStartThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		snapshots := raft.NewInmemSnapshotStore()
		takeSnapshot(t, snapshots, 3, 2, "n1", "n2")
		c := singleConfig(raft.NewInmemStore(), snapshots)
		refused := errors.New("of a later version")
		c.Machine = &restores{err: refused}
		_, err := Open(c)
		require.ErrorIs(t, err, refused)
		require.NotContains(t, err.Error(), "%!")
		c.Machine, c.Stable = machineStub{}, brokenStable{c.Stable}
		_, err = Open(c)
		require.ErrorContains(t, err, errBroken.Error())
		require.NotContains(t, err.Error(), "%!")
	})
}

// TestMembersOfASnapshot: the members of a snapshot are known from the start, even if the log has no entry of them.
func TestMembersOfASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		snapshots := raft.NewInmemSnapshotStore()
		takeSnapshot(t, snapshots, 3, 2, "n1", "n2")
		n, err := Open(singleConfig(raft.NewInmemStore(), snapshots))
		require.NoError(t, err)
		require.True(t, n.acks.hasPeer("n2"))
		require.Len(t, *n.commits.peers.Load(), 1)
		require.Equal(t, invariant.On, n.applier.verify != nil)
		require.True(t, n.Stop())
		require.NoError(t, n.Wait())
	})
}
