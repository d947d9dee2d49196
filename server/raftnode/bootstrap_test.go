package raftnode

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
)

// TestBootstrapIsFinished: a power cut between the term and the first entry leaves a term alone. The entry is
// written at the next start, and is the same; a log with entries stays as it is.
func TestBootstrapIsFinished(t *testing.T) {
	founders := []members.Member{{ID: "n1@a", Addr: "h1:1", Voter: true}, {ID: "n2@b", Addr: "h2:1", Voter: true}}
	open := func(stable *raft.InmemStore, bootstrap []members.Member) *Config {
		return &Config{ID: "n1@a", Bootstrap: bootstrap, Log: stable, Stable: stable, Snapshots: raft.NewInmemSnapshotStore()}
	}
	first := func(c *Config) raft.Log {
		var entry raft.Log
		require.NoError(t, c.Log.GetLog(1, &entry))
		entry.AppendedAt = raft.Log{}.AppendedAt
		return entry
	}
	conf := raft.DefaultConfig()
	conf.LocalID = "n1@a"
	_, transport := raft.NewInmemTransport("n1@a")
	whole := open(raft.NewInmemStore(), founders)
	require.NoError(t, bootstrap(conf, whole, transport))

	cut := open(raft.NewInmemStore(), founders)
	require.NoError(t, cut.Stable.SetUint64([]byte("CurrentTerm"), 1))
	require.NoError(t, bootstrap(conf, cut, transport))
	require.Equal(t, first(whole), first(cut))

	cut.Bootstrap = founders[:1]
	require.NoError(t, bootstrap(conf, cut, transport))
	require.Equal(t, first(whole), first(cut))
	require.NoError(t, bootstrap(conf, open(raft.NewInmemStore(), nil), transport), "a node that joins waits for a leader")
}

// TestBootstrapOverAStoreThatCannotBeRead: nothing is written to it.
func TestBootstrapOverAStoreThatCannotBeRead(t *testing.T) {
	store := raft.NewInmemStore()
	c := &Config{ID: "n1@a", Log: store, Stable: unreadableStable{store}, Snapshots: raft.NewInmemSnapshotStore()}
	conf := raft.DefaultConfig()
	conf.LocalID = "n1@a"
	for _, founders := range [][]members.Member{nil, {{ID: "n1@a", Addr: "h1:1", Voter: true}}} {
		c.Bootstrap = founders
		require.ErrorContains(t, bootstrap(conf, c, nil), "inspect stores: failed to read current term: it cannot be read")
	}
}

type unreadableStable struct{ raft.StableStore }

func (unreadableStable) GetUint64([]byte) (uint64, error) {
	return 0, errors.New("it cannot be read")
}
