package replica_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

// An entry that raft took in another term than the one whose clock stamped it
// is void on every node: its stamp could end leases early.
func TestEntryOfAnotherTermIsVoid(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		require.Equal(t, protocol.OK, leader.Do("SET", "lease", "v", "PX", "60000"))
		w := protocol.NewEntry(nil, protocol.EntryVersion, 1<<40, 0, 0)
		w.Add(protocol.Incarnation{Node: "n9", Epoch: 1}, 1, 1, replicatest.Batch([]string{"SET", "k", "v"}).Body)
		leader.Replica().Propose(leader.Replica().Status().Term-1, w.Bytes())
		require.Equal(t, protocol.OK, leader.Do("SET", "other", "v"))
		require.Equal(t, protocol.Null, leader.Do("GET", "k"))
		require.Equal(t, protocol.Bulk("v"), leader.Do("GET", "lease"))
		c.Settle()
	})
}

// A node that cannot apply an entry stops, and says why: it would have another
// state than the rest.
func TestNodeStopsAtWhatItCannotApply(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		leader.Replica().Propose(leader.Replica().Status().Term, []byte{protocol.EntryVersion + 1})
		time.Sleep(5 * time.Second)
		stopped := 0
		for _, n := range c.Nodes() {
			if n.Replica() == nil {
				stopped++
				require.ErrorContains(t, n.Err(), "newer release")
				require.Len(t, events[replica.Failed](n), 1)
			}
		}
		// The node that is left alone never learns that the entry is committed.
		require.Nil(t, leader.Replica())
		require.GreaterOrEqual(t, stopped, 2)
	})
}
