package replica_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

// TestWaitersOfAKilledNode: a node whose process is gone gives up its places in queues within seconds, for keys and
// for locks, also under the next leader. A node that is only cut off keeps them for as long as ever.
func TestWaitersOfAKilledNode(t *testing.T) {
	for _, c := range []struct {
		name  string
		leads bool // the node led
		fault func(c *replicatest.Cluster, n *replicatest.Node)
		after time.Duration
		gone  bool
	}{
		{"killed", false, func(_ *replicatest.Cluster, n *replicatest.Node) { n.Crash() }, 4 * time.Second, true},
		{"killed leader", true, func(_ *replicatest.Cluster, n *replicatest.Node) { n.Crash() }, 6 * time.Second, true},
		{"cut off", false, func(c *replicatest.Cluster, n *replicatest.Node) { c.Net.Isolate(n.Name) }, 9 * time.Second, false},
		{"cut off for long", false, func(c *replicatest.Cluster, n *replicatest.Node) { c.Net.Isolate(n.Name) }, 14 * time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, cluster *replicatest.Cluster) {
				leader := cluster.Leader()
				followers := cluster.Followers()
				node, other := followers[0], followers[1]
				if c.leads {
					node = leader
				}
				require.Equal(t, protocol.Integer(1), other.Do(words("native 1 1 0 lock.acquire k me px 600000 wait 0")...))
				require.Equal(t, protocol.Parked, node.Do(words("native 2 2 0 lock.acquire k you px 600000 wait 0")...))
				require.Equal(t, protocol.Parked, node.Do(words("block 3 blpop q 0")...))
				require.Equal(t, protocol.Parked, other.Do(words("block 4 blpop q 0")...))
				c.fault(cluster, node)
				time.Sleep(c.after)
				require.Equal(t, protocol.Integer(0), other.Do(words("native 1 0 0 lock.release k me")...))
				require.Equal(t, c.gone, other.Do("LOCK.CHECK", "k", "you").IsNull())
				// The element goes to the first that waits: two are needed if the node is there.
				other.Do("RPUSH", "q", "x")
				require.Equal(t, protocol.Integer(0), other.Do("LLEN", "q"))
				other.Do("RPUSH", "q", "y")
				left := protocol.Integer(1)
				if !c.gone {
					left = protocol.Integer(0)
				}
				require.Equal(t, left, other.Do("LLEN", "q"))
			})
		})
	}
}
