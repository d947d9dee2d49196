package replica_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/raftnode"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/store"
)

// ofNodes runs a test of a cluster of several nodes in virtual time.
func ofNodes(t *testing.T, nodes int, test func(t *testing.T, c *replicatest.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, replicatest.New(t, replicatest.Options{Nodes: nodes, Configure: patience}))
	})
}

// join adds a node, and gives it a vote once it has the log.
func join(t *testing.T, c *replicatest.Cluster, name string) *replicatest.Node {
	t.Helper()
	n := c.Add(name)
	require.NoError(t, c.Change(raftnode.AddNonvoter, n))
	c.Settle(c.Leader(), n)
	require.NoError(t, c.Change(raftnode.AddVoter, n))
	return n
}

// voters returns the names of the voters, as a node knows them.
func voters(n *replicatest.Node) (names []string) {
	for _, m := range n.Replica().Status().Members {
		if m.Voter {
			names = append(names, m.Name)
		}
	}
	return names
}

// TestClusterGrowsAndShrinks: a cluster grows from one node to three and to five, and shrinks to three. No write is
// lost, and each size survives the loss of a minority.
func TestClusterGrowsAndShrinks(t *testing.T) {
	ofNodes(t, 1, func(t *testing.T, c *replicatest.Cluster) {
		written := 0
		write := func(n *replicatest.Node) {
			written++
			require.Equal(t, protocol.OK, n.Do("SET", "k"+strconv.Itoa(written), "v"))
		}
		write(c.Leader())
		join(t, c, "n2")
		join(t, c, "n3")
		c.Settle()
		require.Equal(t, []string{"n1", "n2", "n3"}, voters(c.Node("n3")))
		first := c.Leader()
		first.Crash()
		write(c.Followers()[0])
		first.Start()
		join(t, c, "n4")
		join(t, c, "n5")
		c.Settle()
		down := c.Followers()[:2]
		for _, n := range down {
			n.Crash()
			write(c.Leader())
		}
		for _, n := range down {
			n.Start()
		}
		c.Settle()
		for _, n := range c.Followers()[:2] {
			require.NoError(t, c.Change(raftnode.Remove, n))
			n.WaitRemoved()
			n.Crash()
			write(c.Leader())
		}
		require.Len(t, voters(c.Leader()), 3)
		c.Followers()[0].Crash()
		write(c.Leader())
		require.Equal(t, protocol.Integer(int64(written)), c.Leader().Do("DBSIZE"))
	})
}

// TestRemovedNodeAfterARestartOfAll: a node is removed while it is down, and then all other nodes restart. The removed
// node learns of its removal.
func TestRemovedNodeAfterARestartOfAll(t *testing.T) {
	ofNodes(t, 3, func(t *testing.T, c *replicatest.Cluster) {
		c.Leader()
		removed := c.Followers()[0]
		removed.Crash()
		require.NoError(t, c.Change(raftnode.Remove, removed))
		for _, n := range c.Nodes() {
			if n != removed {
				n.Crash()
			}
		}
		for _, n := range c.Nodes() {
			n.Start()
		}
		removed.WaitRemoved()
	})
}

// TestFirstMembersAreForTheFirstStart: Bootstrap has no effect after the first start.
func TestFirstMembersAreForTheFirstStart(t *testing.T) {
	others := false
	configure := func(c *replica.Config) {
		if others {
			c.Bootstrap = c.Bootstrap[2:]
		}
	}
	inBubble(t, configure, func(t *testing.T, c *replicatest.Cluster) {
		c.Leader()
		n := c.Node("n3")
		n.Crash()
		others = true
		n.Start()
		c.Settle()
		require.Equal(t, []string{"n1", "n2", "n3"}, voters(n))
	})
}

// TestWaitWhileAVoterGoes: WAIT never returns less than a majority, even if a voter that has an acknowledged write
// loses its vote.
func TestWaitWhileAVoterGoes(t *testing.T) {
	ofNodes(t, 3, func(t *testing.T, c *replicatest.Cluster) {
		leader, removed, slow := c.Leader(), c.Followers()[0], c.Followers()[1]
		defer slow.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Hang: true})()
		require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
		// Raft uses the new configuration only after it has sent the entry.
		defer removed.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Delay: time.Millisecond})()
		require.Error(t, c.Change(raftnode.Remove, removed), "the majority of the voters that stay lacks it")
		require.ElementsMatch(t, []string{leader.Name, slow.Name}, voters(leader))
		for _, n := range []*replicatest.Node{leader, slow} {
			for nodes, timeout := range []time.Duration{time.Millisecond, time.Second, time.Second} {
				require.Equal(t, 1, n.Replica().WaitReplicated(t.Context(), nodes, timeout), "%s, WAIT %d", n.Name, nodes)
			}
		}
	})
}

// TestRemovedMemberForwardsNothing: the leader ends the link of a removed member, even if that member does not know of
// its removal.
func TestRemovedMemberForwardsNothing(t *testing.T) {
	ofNodes(t, 3, func(t *testing.T, c *replicatest.Cluster) {
		leader, removed, other := c.Leader(), c.Followers()[0], c.Followers()[1]
		time.Sleep(time.Second)
		c.Net.Isolate(removed.Name)
		require.True(t, leader.Replica().Serves(removed.Replica()))
		require.NoError(t, c.Change(raftnode.Remove, removed))
		synctest.Wait()
		require.False(t, leader.Replica().Serves(removed.Replica()))
		require.True(t, leader.Replica().Serves(other.Replica()))
	})
}
