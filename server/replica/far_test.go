package replica_test

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/raftnode"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

// apart sets the round trip between all nodes, and waits until the leader has measured it.
func apart(c *replicatest.Cluster, roundTrip time.Duration) {
	for _, from := range c.Names() {
		for _, to := range c.Names(from) {
			c.Net.Delay(from, to, roundTrip/2)
		}
	}
	c.Leader()
	time.Sleep(10 * time.Second)
}

// acquires has several callers write through n. It returns how long each write took, in ascending order.
func acquires(t *testing.T, n *replicatest.Node, callers, each int) (took []time.Duration) {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for j := range each {
				begin := time.Now()
				v := n.Do("SET", fmt.Sprint(i, " ", j), "v", "NX", "PX", "3600000")
				mu.Lock()
				took = append(took, time.Since(begin))
				mu.Unlock()
				if !reflect.DeepEqual(v, protocol.OK) {
					t.Errorf("SET NX: %v", v)
				}
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	return took
}

// TestWritesFarApart: between data centres a write takes the round trip to a majority, even if others write at the same
// time.
func TestWritesFarApart(t *testing.T) {
	for _, roundTrip := range []time.Duration{10 * time.Millisecond, 30 * time.Millisecond, 80 * time.Millisecond} {
		for _, callers := range []int{1, 64} {
			inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
				apart(c, roundTrip)
				took := acquires(t, c.Leader(), callers, 20)
				require.GreaterOrEqual(t, took[0], roundTrip)
				require.LessOrEqual(t, took[len(took)*9/10], roundTrip*5/4, "%v apart, %d callers", roundTrip, callers)
				require.Equal(t, roundTrip, c.Leader().Replica().Status().RoundTrip)
			})
		}
	}
}

// TestFollowerFarAwayKeepsUp: a follower that is farther away than the others keeps up, since the leader sends it
// entries before it has answered earlier ones.
func TestFollowerFarAwayKeepsUp(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		far := c.Followers()[0]
		for _, other := range c.Names(far.Name) {
			c.Net.Delay(far.Name, other, 100*time.Millisecond)
			c.Net.Delay(other, far.Name, 100*time.Millisecond)
		}
		for _, other := range c.Followers() {
			if other != far {
				c.Net.Delay(c.Leader().Name, other.Name, raftnode.FarAway/4)
			}
		}
		time.Sleep(10 * time.Second)
		acquires(t, c.Leader(), 1, 1000)
		last := lastLog(c)
		time.Sleep(time.Second)
		require.GreaterOrEqual(t, far.Replica().Status().LastLog, last)
	})
}

// TestFarFollowerMakesUpABacklog: a distant follower that was cut off gets the missing entries at once when it is back.
func TestFarFollowerMakesUpABacklog(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, away := c.Leader(), c.Followers()[0]
		for _, other := range c.Names(away.Name) {
			c.Net.Delay(away.Name, other, raftnode.FarAway)
			c.Net.Delay(other, away.Name, raftnode.FarAway)
		}
		time.Sleep(10 * time.Second)
		c.Net.Isolate(away.Name)
		acquires(t, leader, 1, 3000)
		time.Sleep(time.Second)
		want := lastLog(c)
		c.Net.Rejoin(away.Name)
		time.Sleep(2 * time.Second)
		require.GreaterOrEqual(t, away.Replica().Status().LastLog, want)
	})
}

// TestNodesThatAreTooFarApart: the leader reports a round trip above a quarter of the heartbeat timeout. It does so
// again only after the round trip was clearly shorter.
func TestNodesThatAreTooFarApart(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		apart(c, 90*time.Millisecond)
		leader := c.Leader()
		require.False(t, leader.Replica().Status().FarApart)
		apart(c, 120*time.Millisecond)
		require.Same(t, leader, c.Leader())
		require.Equal(t, []replica.FarApart{{
			RoundTrip: 120 * time.Millisecond, HeartbeatTimeout: replica.DefaultHeartbeatTimeout,
		}}, events[replica.FarApart](leader))
		require.True(t, leader.Replica().Status().FarApart)
		require.False(t, c.Followers()[0].Replica().Status().FarApart, "the leader knows")
		apart(c, 90*time.Millisecond)
		apart(c, 120*time.Millisecond)
		require.Len(t, events[replica.FarApart](leader), 1, "a round trip around the limit is reported once")
		apart(c, 70*time.Millisecond)
		require.False(t, leader.Replica().Status().FarApart)
		apart(c, 120*time.Millisecond)
		require.Len(t, events[replica.FarApart](leader), 2)
	})
}

func TestTimeoutsForARoundTrip(t *testing.T) {
	for _, c := range []struct{ roundTrip, heartbeat, command time.Duration }{
		{0, 400 * time.Millisecond, 1750 * time.Millisecond},
		{100 * time.Millisecond, 400 * time.Millisecond, 1750 * time.Millisecond},
		{101 * time.Millisecond, 500 * time.Millisecond, 2187500 * time.Microsecond},
		{200 * time.Millisecond, 800 * time.Millisecond, 3500 * time.Millisecond},
	} {
		heartbeat, command := replica.TimeoutsFor(c.roundTrip)
		require.Equal(t, c.heartbeat, heartbeat, c.roundTrip)
		require.Equal(t, c.command, command, c.roundTrip)
	}
}

// TestTimeoutsCarryARoundTrip: with the timeouts of TimeoutsFor, an idle cluster keeps its leader, and a leader that is
// cut off is replaced within ten heartbeat timeouts.
func TestTimeoutsCarryARoundTrip(t *testing.T) {
	for _, roundTrip := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond} {
		heartbeat, command := replica.TimeoutsFor(roundTrip)
		inBubble(t, func(c *replica.Config) {
			c.HeartbeatTimeout, c.ElectionTimeout, c.CommandTimeout = heartbeat, heartbeat, command
		}, func(t *testing.T, c *replicatest.Cluster) {
			apart(c, roundTrip)
			leader := c.Leader()
			term := leader.Replica().Status().Term
			time.Sleep(2 * time.Minute)
			require.Equal(t, term, c.Leader().Replica().Status().Term, "%v apart", roundTrip)
			require.Empty(t, events[replica.FarApart](leader))
			c.Net.Isolate(leader.Name)
			time.Sleep(10 * heartbeat)
			var leads []string
			for _, n := range c.Nodes() {
				if n != leader && n.Replica().Status().Leading {
					leads = append(leads, n.Name)
				}
			}
			require.Len(t, leads, 1, "%v apart", roundTrip)
		})
	}
}
