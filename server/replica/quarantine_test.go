package replica_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/store"
)

// captures has the hashes of the states that the nodes have captured, by log index and node.
type captures struct {
	mu  sync.Mutex
	all map[uint64]map[string]string
}

func (c *captures) configure(conf *replica.Config) {
	conf.TrailingLogs = 1
	id := conf.ID
	conf.OnCapture = func(index uint64, captured fsm.Snapshot) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.all[index] == nil {
			c.all[index] = make(map[string]string)
		}
		c.all[index][id] = captured.Hash()
	}
}

// last returns the hashes at the newest index, by node.
func (c *captures) last() (hashes map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.all[slices.Max(slices.Collect(maps.Keys(c.all)))])
}

// propose has all nodes capture their states, and returns the hashes after a second.
func (c *captures) propose(t *testing.T, cluster *replicatest.Cluster) map[string]string {
	t.Helper()
	require.True(t, cluster.Leader().Replica().ProposeCheck())
	time.Sleep(time.Second)
	return c.last()
}

func inWatchedBubble(t *testing.T, test func(t *testing.T, c *replicatest.Cluster, found *captures)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		found := &captures{all: make(map[uint64]map[string]string)}
		c := replicatest.New(t, replicatest.Options{Configure: found.configure})
		slow(c)
		test(t, c, found)
	})
}

func corrupt(t *testing.T, n *replicatest.Node) {
	t.Helper()
	require.NoError(t, n.Replica().Corrupt(protocoltest.AppendRequest(nil, 0, "set", "k0", "wrong")))
}

// replaceState replaces a node's state by another's.
func replaceState(n, from *replicatest.Node) error {
	snapshot, state, err := from.Replica().OpenSnapshot(n.Replica().Reached())
	if err != nil {
		return err
	}
	defer state.Close()
	return n.Replica().ReplaceState(context.Background(), snapshot, state)
}

// requireDescriptions requires that n refuses a state with an invalid description, and a truncated state.
func requireDescriptions(t *testing.T, n, from *replicatest.Node) {
	t.Helper()
	for _, spoil := range []func(*store.Snapshot){
		func(s *store.Snapshot) { s.Members.Index = s.Index + 1 },
		func(s *store.Snapshot) { s.Term = 0 },
		func(s *store.Snapshot) { s.Term += 1000 },
		func(s *store.Snapshot) { s.Members.Members = nil },
		nil,
	} {
		snapshot, state, err := from.Replica().OpenSnapshot(n.Replica().Reached())
		require.NoError(t, err)
		if spoil == nil {
			err = n.Replica().ReplaceState(t.Context(), snapshot, io.LimitReader(state, snapshot.Bytes-1))
			require.Error(t, err, "the snapshot is truncated")
		} else {
			spoil(&snapshot)
			err = n.Replica().ReplaceState(t.Context(), snapshot, state)
			require.ErrorContains(t, err, "its description makes no sense")
		}
		require.NoError(t, state.Close())
	}
	_, frozen := n.Replica().Quarantined()
	require.True(t, frozen)
}

// TestCapturesAreEqual: all members capture equal states at an index, also after a restart or the restore of a
// snapshot. A member whose state differs captures another.
func TestCapturesAreEqual(t *testing.T) {
	inWatchedBubble(t, func(t *testing.T, c *replicatest.Cluster, found *captures) {
		loaded, restarted := c.Followers()[0], c.Followers()[1]
		loaded.Crash()
		c.Fill(20)
		require.NoError(t, c.Leader().Replica().TakeSnapshot())
		loaded.Start()
		requireFollows(t, c, loaded)
		require.NotEmpty(t, events[replica.Restored](loaded))
		restarted.Crash()
		restarted.Start()
		requireFollows(t, c, restarted)
		hashes := found.propose(t, c)
		require.Len(t, hashes, 3)
		require.Len(t, slices.Compact(slices.Sorted(maps.Values(hashes))), 1)

		corrupt(t, loaded)
		hashes = found.propose(t, c)
		require.Len(t, slices.Compact(slices.Sorted(maps.Values(hashes))), 2)
		require.NotEqual(t, hashes[loaded.ID], hashes[restarted.ID])
		require.False(t, c.Followers()[0].Replica().ProposeCheck(), "it does not lead")
	})
}

// TestNodeThatComparesNothing: a node without OnCapture applies an entry that asks for a capture.
func TestNodeThatComparesNothing(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		require.True(t, c.Leader().Replica().ProposeCheck())
		c.Fill(1)
		c.Settle()
	})
}

// TestQuarantineFarAway: a node in quarantine transfers its leadership even if a connection and an answer take half an
// election timeout, or all of it.
func TestQuarantineFarAway(t *testing.T) {
	for _, part := range []time.Duration{8, 4} {
		inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
			n := c.Leader()
			slowBy(c, replica.DefaultElectionTimeout/part)
			c.Fill(5)
			n.Replica().Quarantine()
			time.Sleep(10 * replica.DefaultElectionTimeout)
			require.NotEqual(t, n, c.Leader())
			c.Fill(5)
		})
	}
}

// TestQuarantineWithoutAnHeir: the only voter that may lead is down. It leads after its restart.
func TestQuarantineWithoutAnHeir(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		c.Fill(5)
		n, away, other := c.Leader(), c.Followers()[0], c.Followers()[1]
		away.Crash()
		other.Replica().Quarantine()
		n.Replica().Quarantine()
		last := n.Replica().Status().LastLog
		time.Sleep(10 * time.Second)
		require.False(t, n.Replica().Status().Leading)
		require.Equal(t, last, n.Replica().Status().LastLog)
		require.Len(t, events[replica.LeadershipDeclined](n), 1)
		away.Start()
		time.Sleep(10 * time.Second)
		require.Equal(t, away, c.Leader())
		c.Fill(5)
	})
}

// TestHeirWithoutAState: a node in quarantine is elected, since it alone has the last entry. The only voter that may
// lead has just started, and has applied nothing. That voter serves within ten election timeouts.
func TestHeirWithoutAState(t *testing.T) {
	quarantined := false
	inBubble(t, func(c *replica.Config) {
		patience(c)
		c.Quarantined = quarantined && c.ID == "n1"
	}, func(t *testing.T, c *replicatest.Cluster) {
		n, heir, silent := c.Node("n1"), c.Node("n2"), c.Node("n3")
		c.Lead(silent)
		c.Net.Cut(silent.Name, heir.Name)
		require.Equal(t, protocol.OK, silent.Do("SET", "k", "v"))
		heir.Crash()
		n.Crash()
		c.Net.Isolate(silent.Name)
		quarantined = true
		n.Start()
		heir.Start()
		begun := time.Now()
		require.Equal(t, protocol.Bulk("v"), heir.Do("GET", "k"))
		require.Less(t, time.Since(begun), 10*replica.DefaultElectionTimeout)
		require.Len(t, events[replica.LeadershipDeclined](n), 1)
	})
}

// TestQuarantine: a node whose state differs stops leading, answers no command, and gives its state to nobody. It still
// stores the log. Only the state of another member makes it a normal member again.
func TestQuarantine(t *testing.T) {
	inWatchedBubble(t, func(t *testing.T, c *replicatest.Cluster, found *captures) {
		c.Fill(20)
		n := c.Leader()
		corrupt(t, n)
		require.NoError(t, n.Replica().TakeSnapshot())
		n.Replica().Quarantine()
		time.Sleep(time.Second)
		require.NotEqual(t, n, c.Leader())
		require.Len(t, events[replica.LeadershipDeclined](n), 1)
		reached := n.Replica().Reached()
		c.Fill(5)
		for _, words := range [][]string{{"GET", "k0"}, {"SET", "k0", "v"}} {
			require.Equal(t, protocol.ErrQuarantined.Value(), n.Do(words...))
		}
		require.Equal(t, reached, n.Replica().Reached())
		time.Sleep(time.Second) // a reply needs only a majority, so the node may be late
		require.Equal(t, c.Leader().Replica().Status().LastLog, n.Replica().Status().LastLog)
		require.Error(t, n.Replica().TakeSnapshot())
		_, _, err := n.Replica().OpenSnapshot(0)
		require.Error(t, err)
		_, err = n.Replica().Capture(t.Context(), true)
		require.ErrorIs(t, err, protocol.ErrQuarantined)
		require.Error(t, n.Replica().Healthy())
		require.Error(t, n.Replica().Release(), "its state is the same still")

		other := slices.DeleteFunc(c.Followers(), func(f *replicatest.Node) bool { return f == n })[0]
		require.ErrorContains(t, replaceState(other, c.Leader()), "the node is not in quarantine")
		requireDescriptions(t, n, c.Leader())
		require.NoError(t, replaceState(n, c.Leader()))
		hashes := found.propose(t, c)
		require.Len(t, hashes, 3)
		require.Len(t, slices.Compact(slices.Sorted(maps.Values(hashes))), 1)
		require.Equal(t, protocol.ErrQuarantined.Value(), n.Do("GET", "k0"))
		require.NoError(t, n.Replica().Release())
		require.Equal(t, protocol.Bulk("v"), n.Do("GET", "k0"))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.NoError(t, c.Leader().Replica().TransferLeadership(ctx, n.ID))
		require.Equal(t, n, c.Leader())
		n.Replica().Quarantine()
		time.Sleep(time.Second)
		require.NotEqual(t, n, c.Leader())
		require.Len(t, events[replica.LeadershipDeclined](n), 2, "of each leadership")
	})
}

// TestQuarantineUnderACommand: a node is put into quarantine while its client's command is in flight. A follower's
// client gets the leader's reply. A leader's client gets ErrUncertain: the next leader applies the command, and the
// reply is unknown.
func TestQuarantineUnderACommand(t *testing.T) {
	for _, leads := range []bool{false, true} {
		t.Run(fmt.Sprint("leads=", leads), func(t *testing.T) {
			inWatchedBubble(t, func(t *testing.T, c *replicatest.Cluster, _ *captures) {
				n, reply := c.Followers()[0], protocol.Integer(1)
				if leads {
					n, reply = c.Leader(), protocol.ErrUncertain.Value()
				}
				replied := make(chan protocol.Value, 1)
				go func() { replied <- n.Do("INCR", "k") }()
				synctest.Wait() // the command was sent to the others
				n.Replica().Quarantine()
				require.Equal(t, reply, <-replied)
				require.Equal(t, protocol.Integer(2), c.Leader().Do("INCR", "k"))
			})
		})
	}
}

// TestReplacedStateKeepsTheLog: a node in quarantine has acknowledged entries after the end of the state that it gets.
// These entries stay in its log, and are applied.
func TestReplacedStateKeepsTheLog(t *testing.T) {
	inWatchedBubble(t, func(t *testing.T, c *replicatest.Cluster, found *captures) {
		c.Fill(10)
		leader, n := c.Leader(), c.Followers()[0]
		c.Settle()
		corrupt(t, n)
		n.Replica().Quarantine()
		c.Fill(10)
		require.NoError(t, leader.Replica().TakeSnapshot())
		c.Fill(10)
		time.Sleep(time.Second)
		last := n.Replica().Status().LastLog
		require.Equal(t, leader.Replica().Status().LastLog, last)
		require.NoError(t, replaceState(n, leader))
		require.Equal(t, last, n.Replica().Status().LastLog)
		for _, other := range c.Nodes() {
			if other != n && other != leader {
				other.Crash()
			}
		}
		c.Fill(1)
		require.Len(t, slices.Compact(slices.Sorted(maps.Values(found.propose(t, c)))), 1)
		require.NoError(t, n.Replica().Release())
		n.Crash()
		n.Start()
		requireFollows(t, c, n)
		require.Empty(t, events[replica.Failed](n))
	})
}

// TestQuarantinedNodeIsNotElected: a node that starts in quarantine leads neither after the death of a leader nor by a
// transfer.
func TestQuarantinedNodeIsNotElected(t *testing.T) {
	inBubble(t, func(c *replica.Config) { c.Quarantined = c.ID == "n1" }, func(t *testing.T, c *replicatest.Cluster) {
		n := c.Node("n1")
		for range 5 {
			leader := c.Leader()
			require.NotEqual(t, n, leader)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			require.Error(t, leader.Replica().TransferLeadership(ctx, n.ID))
			cancel()
			leader.Crash()
			require.NotEqual(t, n, c.Leader())
			leader.Start()
			c.Fill(3)
			time.Sleep(time.Second)
		}
		require.Empty(t, events[replica.LeadershipGained](n))
	})
}

// TestQuarantinedNodeHasTheLog: the only other running voter lacks entries that the node in quarantine has
// acknowledged. The voter gets these entries, and leads within five election timeouts.
func TestQuarantinedNodeHasTheLog(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, n, behind := c.Leader(), c.Followers()[0], c.Followers()[1]
		behind.Crash()
		c.Fill(10)
		c.Settle()
		n.Replica().Quarantine()
		leader.Crash()
		behind.Start()
		time.Sleep(5 * replica.DefaultElectionTimeout)
		require.Equal(t, behind, c.Leader())
		require.Equal(t, protocol.Bulk("v"), behind.Do("GET", "k9"))
		require.Empty(t, events[replica.LeadershipGained](n))
	})
}
