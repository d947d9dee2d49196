package replica_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

// TestWaitersOfAKilledNode: the clients of a node whose process has died lose their places in the queues of keys and
// locks within seconds, even if the node led. The clients of a node that is only cut off keep them for AbsentAfter.
func TestWaitersOfAKilledNode(t *testing.T) {
	for _, c := range []struct {
		name    string
		leads   bool // the node led
		fault   func(c *replicatest.Cluster, n *replicatest.Node)
		after   time.Duration
		dropped bool
	}{
		{"killed", false, func(_ *replicatest.Cluster, n *replicatest.Node) { n.Crash() }, 4 * time.Second, true},
		{"killed leader", true, func(_ *replicatest.Cluster, n *replicatest.Node) { n.Crash() }, 6 * time.Second, true},
		{
			"cut off", false, func(c *replicatest.Cluster, n *replicatest.Node) { c.Net.Isolate(n.Name) }, 9 * time.Second,
			false,
		},
		{
			"cut off for long", false, func(c *replicatest.Cluster, n *replicatest.Node) { c.Net.Isolate(n.Name) },
			14 * time.Second, true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, cluster *replicatest.Cluster) {
				leader := cluster.Leader()
				time.Sleep(time.Minute) // no checks run while no client waits
				followers := cluster.Followers()
				node, other := followers[0], followers[1]
				if c.leads {
					node = leader
				}
				require.Equal(t, protocol.Integer(1), other.Do(words("lock-command 1 1 0 lock.acquire k me px 600000 wait 0")...))
				require.Equal(t, protocol.Parked, node.Do(words("lock-command 2 2 0 lock.acquire k you px 600000 wait 0")...))
				require.Equal(t, protocol.Parked, node.Do(words("wait-for-key 3 blpop q 0")...))
				require.Equal(t, protocol.Parked, other.Do(words("wait-for-key 4 blpop q 0")...))
				c.fault(cluster, node)
				time.Sleep(c.after)
				require.Equal(t, protocol.Integer(0), other.Do(words("lock-command 1 0 0 lock.release k me")...))
				require.Equal(t, c.dropped, other.Do("LOCK.CHECK", "k", "you").IsNull())
				// An element goes to the first waiter. If the faulty node's client still waits, two elements are taken.
				other.Do("RPUSH", "q", "x")
				require.Equal(t, protocol.Integer(0), other.Do("LLEN", "q"))
				other.Do("RPUSH", "q", "y")
				left := protocol.Integer(1)
				if !c.dropped {
					left = protocol.Integer(0)
				}
				require.Equal(t, left, other.Do("LLEN", "q"))
			})
		})
	}
}

// TestWaitersOfAPreviousIncarnation: a node that restarts at once, and is never silent, removes the places of its
// previous process's clients.
func TestWaitersOfAPreviousIncarnation(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		node, other := c.Followers()[0], c.Followers()[1]
		time.Sleep(time.Minute)
		park(t, node)
		node.Crash()
		node.Start()
		time.Sleep(3 * time.Second)
		require.Equal(t, protocol.Integer(1), other.Do("RPUSH", "q", "x"))
		require.Equal(t, protocol.Integer(1), other.Do("LLEN", "q"))
		require.Empty(t, events[replica.WaitersDropped](c.Leader()))
	})
}

// TestSilenceAfterAPause: a process that was suspended has heard of no other node and of no leader meanwhile. That does
// not count as silence. Until the whole time has passed again, a leader drops no clients of other nodes, and a node
// without a leader dismisses none of its own.
func TestSilenceAfterAPause(t *testing.T) {
	const long = replica.DefaultAbsentAfter
	for _, c := range []struct {
		name         string
		pause, after time.Duration // the time without a check, and the time with one each second
		dropped      bool
	}{
		{"no pause", time.Second, long, true},
		{"right after a pause", time.Minute, 0, false},
		{"soon after a pause", time.Minute, long - time.Second, false},
		{"long after a pause", time.Minute, long, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, cluster *replicatest.Cluster) {
				looks := func(n *replicatest.Node) {
					synctest.Wait()
					n.Replica().LookForWaiters(0)
					for ahead := c.pause; ahead <= c.pause+c.after; ahead += time.Second {
						n.Replica().LookForWaiters(ahead)
					}
				}
				leader, silent, alone := cluster.Leader(), cluster.Followers()[0], cluster.Followers()[1]
				require.True(t, alone.Replica().SawLeader())
				park(t, silent)
				looks(leader)
				require.Equal(t, c.dropped, len(events[replica.WaitersDropped](leader)) > 0, "of the other node")

				replies := park(t, alone)
				cluster.Net.Isolate(alone.Name)
				time.Sleep(3 * time.Second)
				require.Empty(t, alone.Replica().Status().Leader)
				looks(alone)
				require.Equal(t, c.dropped, len(replies) > 0, "of the node itself")
			})
		})
	}
}

// park has a client of n wait for an element, and returns the channel of its reply.
func park(t *testing.T, n *replicatest.Node) <-chan protocol.Value {
	replies := make(chan protocol.Value, 1)
	waiters := n.Replica().Clients().Waiters
	ticket := waiters.Enter(1, func(v protocol.Value) { replies <- v })
	b := replicatest.Batch(words("wait-for-key %d blpop q 0", ticket))
	require.NoError(t, n.Replica().Execute(b))
	require.Equal(t, protocol.Parked, b.Replies[0])
	waiters.Parked(ticket, b.Number)
	return replies
}
