package replica_test

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/peer/wire"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

// TestDeathOfTheLeaderIsNoticed: a leader whose process dies is replaced without waiting for a timeout.
func TestDeathOfTheLeaderIsNoticed(t *testing.T) {
	protocoltest.SkipShort(t, "many elections")
	for _, nodes := range []int{3, 5} {
		synctest.Test(t, func(t *testing.T) {
			c := replicatest.New(t, replicatest.Options{Nodes: nodes})
			var all []time.Duration
			for range 11 {
				old := c.Leader()
				require.Equal(t, protocol.OK, old.Do("SET", "k", "v"))
				time.Sleep(time.Second)
				start := time.Now()
				old.Crash()
				require.Equal(t, protocol.OK, c.Followers()[0].Do("SET", "k", "w"))
				all = append(all, time.Since(start))
				old.Start()
				c.Settle()
			}
			require.Less(t, median(all), 100*time.Millisecond)
		})
	}
}

// refusing is a stream that refuses connections to one address.
type refusing struct {
	wire.Stream
	addr atomic.Value
}

func (r *refusing) DialContext(ctx context.Context, addr string) (net.Conn, error) {
	if addr == r.addr.Load() {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	return r.Stream.DialContext(ctx, addr)
}

// TestOneNodeDoesNotDeposeTheLeader: a leader that refuses the connections of a single node stays, since the fault may
// be that node's.
func TestOneNodeDoesNotDeposeTheLeader(t *testing.T) {
	ways := make(map[string]*refusing)
	configure := func(c *replica.Config) {
		ways[c.ID] = &refusing{Stream: c.Peers.Forward}
		c.Peers.Forward = ways[c.ID]
	}
	inBubble(t, configure, func(t *testing.T, c *replicatest.Cluster) {
		leader, alone := c.Leader(), c.Followers()[0]
		term := leader.Replica().Status().Term
		time.Sleep(time.Second)
		ways[alone.Name].addr.Store(leader.Name)
		c.Net.Break(alone.Name, leader.Name)
		time.Sleep(10 * time.Second)
		require.Equal(t, protocol.ErrNoLeader.Value(), alone.Do("GET", "k"))
		require.Equal(t, leader, c.Leader())
		require.Equal(t, term, leader.Replica().Status().Term)
		ways[alone.Name].addr.Store("")
		time.Sleep(time.Second)
		require.Equal(t, protocol.Null, alone.Do("GET", "k"))
	})
}

// TestTwoOfFiveDoNotDeposeTheLeader: refusals of two of five nodes do not depose a leader, since two are no majority of
// the other four.
func TestTwoOfFiveDoNotDeposeTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := replicatest.New(t, replicatest.Options{Nodes: 5})
		leader := c.Leader()
		time.Sleep(time.Second)
		term := leader.Replica().Status().Term
		for _, n := range c.Followers()[:2] {
			n.Replica().Refused()
		}
		time.Sleep(5 * time.Second)
		require.Equal(t, leader, c.Leader())
		require.Equal(t, term, leader.Replica().Status().Term)
	})
}

// TestRefusalsDoNotAddUp: a refusal that one node got long ago does not count together with another node's, if the
// first node has reached the leader since.
func TestRefusalsDoNotAddUp(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		time.Sleep(time.Second)
		term := leader.Replica().Status().Term
		for _, n := range c.Followers() {
			n.Replica().Refused()
			c.Net.Break(n.Name, leader.Name)
			time.Sleep(5 * time.Second)
			require.Equal(t, leader, c.Leader())
			require.Equal(t, term, leader.Replica().Status().Term)
		}
	})
}
