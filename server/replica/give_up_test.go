package replica_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/store"
)

// A leader whose large packets are lost gives the leadership up, although all others hear its heartbeats: another node
// serves within seconds, and what the large packet was to bring is applied at most once.
func TestLeaderThatIsNotAcknowledgedGivesUp(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		synctest.Test(t, func(t *testing.T) {
			c := replicatest.New(t, replicatest.Options{Nodes: nodes})
			leader := c.Leader()
			require.Equal(t, protocol.Integer(1), leader.Do("INCR", "n"))
			for _, n := range c.Followers() {
				c.Net.LoseAbove(leader.Name, n.Name, 600)
			}
			begun := time.Now()
			large := later(leader, "APPEND", "large", strings.Repeat("x", 20<<10))
			small := later(leader, "INCR", "n")
			time.Sleep(6 * time.Second)
			next := c.Leader()
			require.NotEqual(t, leader, next)
			require.Equal(t, protocol.OK, next.Do("SET", "k", "v"))
			require.Less(t, time.Since(begun), 7*time.Second)
			given := events[replica.LeadershipGivenUp](leader)
			require.Len(t, given, 1)
			require.Len(t, given[0].Asked, 1)
			require.Empty(t, events[replica.LeadershipGivenUp](next))

			c.Net.Heal()
			c.Settle()
			<-large
			<-small
			length, n := next.Do("STRLEN", "large").Num, next.Do("GET", "n").Str
			require.Contains(t, []int64{0, 20 << 10}, length)
			require.Contains(t, []string{"1", "2"}, n)

			require.NoError(t, next.Replica().TransferLeadership(t.Context(), leader.ID))
			require.Equal(t, leader, c.Leader())
			for _, n := range c.Followers() {
				c.Net.LoseAbove(leader.Name, n.Name, 600)
			}
			large = later(leader, "APPEND", "large", strings.Repeat("x", 20<<10))
			time.Sleep(6 * time.Second)
			require.Len(t, events[replica.LeadershipGivenUp](leader), 2, "it gives up as often as it must")
			c.Net.Heal()
			<-large
		})
	}
}

// The others have what the leader's own disk lacks: whether to end such a node is decided by the watchdog of its disk.
func TestLeaderOfAHungDiskIsNotGivenUp(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		leader.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Hang: true})
		reply := later(c.Followers()[0], "INCR", "n")
		time.Sleep(20 * time.Second)
		require.Equal(t, protocol.ErrUncertain.Value(), <-reply)
		require.NotEmpty(t, events[replica.ProposalStalled](leader))
		require.Empty(t, events[replica.LeadershipGivenUp](leader))
		leader.Crash()
	})
}

// A leader keeps its leadership while its entries take long on a slow link.
func TestSlowLeaderKeepsItsLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := replicatest.New(t, replicatest.Options{Nodes: 3})
		leader := c.Leader()
		for _, n := range c.Followers() {
			c.Net.Limit(leader.Name, n.Name, 130<<10)
		}
		for range 20 { // each is acknowledged before its time is over, and the last after more than that
			later(leader, "SET", "large", strings.Repeat("x", 50<<10))
		}
		time.Sleep(20 * time.Second)
		require.Equal(t, leader, c.Leader())
		require.Empty(t, events[replica.LeadershipGivenUp](leader))
	})
}
