package replica_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/store"
)

// A lock that is released goes to who asked for it while the release waited for
// the same entry, whoever asked first and through whichever node.
func TestReleasedLockIsAcquiredInTheSameEntry(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		for _, n := range []*replicatest.Node{leader, c.Followers()[0]} {
			require.Equal(t, protocol.OK, leader.Do("SET", "lock", "a"))
			var clear []func()
			for _, each := range c.Nodes() {
				clear = append(clear, each.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Delay: 50 * time.Millisecond}))
			}
			before := later(leader, "INCR", "n") // is on its way while the others come
			time.Sleep(20 * time.Millisecond)
			acquired := later(n, "SET", "lock", "b", "NX")
			time.Sleep(20 * time.Millisecond)
			require.Equal(t, protocol.Integer(1), leader.Do("DEL", "lock"))
			require.Equal(t, protocol.OK, <-acquired)
			<-before
			for _, f := range clear {
				f()
			}
		}
	})
}
