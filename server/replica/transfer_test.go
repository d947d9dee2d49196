package replica_test

import (
	"context"
	"strings"
	"sync/atomic"
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

// TestLeadsAgainDuringItsOwnTransfer: a leader transfers its leadership, and is elected again before the successor has
// answered the request. It serves at once. Raft's own transfer would still be in progress, and refuse the first entry.
func TestLeadsAgainDuringItsOwnTransfer(t *testing.T) {
	inBubble(t, patience, func(t *testing.T, c *replicatest.Cluster) {
		first, second, third := c.Node("n1"), c.Node("n2"), c.Node("n3")
		lead(t, c, first)
		require.Equal(t, protocol.OK, first.Do("SET", "k", "v"))
		time.Sleep(time.Second)
		c.Net.Cut(second.Name, first.Name) // n2's answers do not reach n1
		start := time.Now()
		from := first
		for _, to := range []*replicatest.Node{second, third, first} {
			require.Equal(t, from.Name, c.Leader().Name)
			require.NoError(t, from.Replica().TransferLeadership(t.Context(), to.ID))
			from = to
		}
		require.Less(t, time.Since(start), 400*time.Millisecond, "the test needs n2's answer to be awaited still")
		require.Equal(t, protocol.OK, third.Do("SET", "k", "v"))
		require.Less(t, time.Since(start), time.Second)
	})
}

// TestFirstEntryIsNotInFlight: the first entry of a leadership may be proposed twice, and the second one be applied
// while the node serves. Neither is counted as in flight. Otherwise the count would become negative: two entries would
// be in flight at a time, and the leader would look stalled.
func TestFirstEntryIsNotInFlight(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		r := c.Leader().Replica()
		before := r.Status().Applied
		r.Look()
		synctest.Wait()
		require.Equal(t, before, r.Status().Applied, "it is proposed once")
		r.ProposeFirst()
		time.Sleep(time.Second)
		require.Greater(t, r.Status().Applied, before)
		require.Zero(t, r.InFlight())
		time.Sleep(time.Minute)
		require.NoError(t, r.Healthy())
	})
}

// TestTransferThatIsGivenUp: the context of a transfer ends before the other node has taken over the leadership. The
// leader continues to serve.
func TestTransferThatIsGivenUp(t *testing.T) {
	for _, after := range []time.Duration{0, time.Millisecond, 100 * time.Millisecond} {
		inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
			for range 10 {
				leader, to := c.Leader(), c.Followers()[0]
				require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
				c.Net.Cut(leader.Name, to.Name)
				ctx, cancel := context.WithTimeout(t.Context(), after)
				require.ErrorIs(t, leader.Replica().TransferLeadership(ctx, to.ID), context.DeadlineExceeded)
				cancel()
				require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
				c.Net.Heal()
				time.Sleep(5 * time.Second)
			}
		})
	}
}

// TestLeadershipEndsDuringATransfer: a transfer waits for an entry in flight that cannot be committed, and the
// leadership ends meanwhile. When the node leads again, it proposes entries as before.
func TestLeadershipEndsDuringATransfer(t *testing.T) {
	inBubble(t, patience, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		for n := range int64(3) {
			require.Equal(t, protocol.Integer(2*n+1), leader.Do("INCR", "n"))
			c.Net.Isolate(leader.Name)
			write := later(leader, "INCR", "n")
			transferred := make(chan error, 1)
			synctest.Wait() // the entry is in flight
			go func() { transferred <- leader.Replica().TransferLeadership(t.Context(), "") }()
			synctest.Wait()
			require.Equal(t, 1, leader.Replica().InFlight())
			require.NoError(t, <-transferred)
			require.False(t, leader.Replica().Status().Leading)
			c.Net.Heal()
			require.Equal(t, protocol.Integer(2*n+2), <-write)
			if next := c.Leader(); next != leader {
				require.NoError(t, next.Replica().TransferLeadership(t.Context(), leader.ID))
			}
			require.Same(t, leader, c.Leader())
		}
		require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
	})
}

// startSlow restarts n with a state machine that takes 10 ms to apply an entry.
func startSlow(c *replicatest.Cluster, n *replicatest.Node) {
	n.Crash()
	c.Net.Isolate(n.Name)
	n.Start()
	time.Sleep(time.Second)
	n.Replica().SlowDown(10 * time.Millisecond)
	c.Net.Heal()
}

// TestSuccessorHasAppliedTheLog: a node that has the whole log becomes the leader only after it has applied the log. If
// no successor is named, another node becomes the leader at once.
func TestSuccessorHasAppliedTheLog(t *testing.T) {
	inBubble(t, patience, func(t *testing.T, c *replicatest.Cluster) {
		leader, slow, other := c.Leader(), c.Followers()[0], c.Followers()[1]
		startSlow(c, slow)
		for range 2000 {
			require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := leader.Replica().TransferLeadership(short, slow.ID)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, slow.Name+" has applied the log up to ")
		require.Same(t, leader, c.Leader())
		require.NoError(t, leader.Replica().TransferLeadership(t.Context(), ""))
		require.Same(t, other, c.Leader())

		began := time.Now()
		require.NoError(t, other.Replica().TransferLeadership(t.Context(), slow.ID))
		require.Greater(t, time.Since(began), 5*time.Second, "the transfer waits until the target has applied the log")
		require.Same(t, slow, c.Leader())
	})
}

// TestStartIsOverWhenTheLogIsApplied: a node is unhealthy until it has applied the entries that were committed before
// its start.
func TestStartIsOverWhenTheLogIsApplied(t *testing.T) {
	inBubble(t, patience, func(t *testing.T, c *replicatest.Cluster) {
		leader, n := c.Leader(), c.Followers()[0]
		for range 2000 {
			require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
		}
		startSlow(c, n)
		time.Sleep(2 * time.Second)
		require.ErrorContains(t, n.Replica().Healthy(), "since the start")
		time.Sleep(20 * time.Second)
		require.NoError(t, n.Replica().Healthy())
	})
}

// TestTransferWaitsForWhatIsInFlight: a transfer waits until the entry in flight is applied, and no longer. Then the
// other node leads.
func TestTransferWaitsForWhatIsInFlight(t *testing.T) {
	inBubble(t, patience, func(t *testing.T, c *replicatest.Cluster) {
		leader, followers := c.Leader(), c.Followers()
		require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
		time.Sleep(time.Minute)
		for _, n := range append(followers, leader) {
			n.Disk.HoldSyncs()
		}
		reply := later(leader, "SET", "k", "w")
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, leader.Replica().Healthy(), "what is in flight has begun a moment ago")
		done := make(chan error, 1)
		go func() { done <- leader.Replica().TransferLeadership(t.Context(), followers[0].ID) }()
		time.Sleep(10 * time.Millisecond)
		require.Empty(t, done)
		begun := time.Now()
		for _, n := range append(followers, leader) {
			n.Disk.ReleaseSyncs()
		}
		require.NoError(t, <-done)
		require.Equal(t, protocol.OK, <-reply)
		require.Less(t, time.Since(begun), time.Second)
		require.Equal(t, followers[0].Name, c.Leader().Name)
	})
}

// TestHealthWithoutALeader: a node is unhealthy while it knows no leader, and healthy again when there is one. An idle
// minute does not make it unhealthy.
func TestHealthWithoutALeader(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		time.Sleep(time.Minute)
		follower := c.Followers()[0]
		require.NoError(t, follower.Replica().Healthy())
		c.Net.Isolate(follower.Name)
		deadline := time.Now().Add(time.Minute)
		for follower.Replica().Status().Leader.Name != "" && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
		}
		require.EqualError(t, follower.Replica().Healthy(), "no leader is known")
		c.Net.Heal()
		time.Sleep(5 * time.Second)
		require.NoError(t, follower.Replica().Healthy())
	})
}

// TestRefusedTransfers: a transfer to a node that cannot lead returns the reason, and the leader stays. Without another
// voter, or on a node that does not lead, there is nothing to transfer, and no error.
func TestRefusedTransfers(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		term := leader.Replica().Status().Term
		transfer := func(n *replicatest.Node, to string) error { return n.Replica().TransferLeadership(t.Context(), to) }
		require.ErrorIs(t, transfer(leader, "n9"), raftnode.ErrNotMember)
		require.ErrorContains(t, transfer(leader, leader.ID), "that node leads already")
		require.NoError(t, transfer(follower, ""))
		require.NoError(t, transfer(follower, follower.ID), "a follower has nothing to transfer")
		require.ErrorIs(t, transfer(follower, "n9"), raftnode.ErrNotMember)
		require.Equal(t, leader, c.Leader())
		require.Equal(t, term, leader.Replica().Status().Term)

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, leader.Replica().TransferLeadership(ended, ""), context.Canceled)
		require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"), "what waits is proposed again")
	})
	synctest.Test(t, func(t *testing.T) {
		n := replicatest.New(t, replicatest.Options{Nodes: 1}).Leader()
		begun := time.Now()
		require.NoError(t, n.Replica().TransferLeadership(t.Context(), ""))
		require.Zero(t, time.Since(begun))
		require.True(t, n.Replica().Status().Leading)
	})
}

// TestLeaderThatIsNotAcknowledgedGivesUp: a leader whose large packets are lost gives up its leadership, although all
// others hear its heartbeats. Another node serves within seconds, and the large write is applied at most once.
func TestLeaderThatIsNotAcknowledgedGivesUp(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		for _, roundTrip := range []time.Duration{0, 30 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				c := replicatest.New(t, replicatest.Options{Nodes: nodes})
				apart(c, roundTrip)
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
}

// TestGivingUpEndsWithTheNode: a node ends only after the event of its lost leadership was handled. So it emits no
// event after its end.
func TestGivingUpEndsWithTheNode(t *testing.T) {
	var begun, handled atomic.Bool
	slow := func(c *replica.Config) {
		onEvent := c.OnEvent
		c.OnEvent = func(e replica.Event) {
			if _, is := e.(replica.LeadershipGivenUp); is {
				begun.Store(true)
				time.Sleep(time.Minute)
				handled.Store(true)
			}
			onEvent(e)
		}
	}
	inBubble(t, slow, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		for _, n := range c.Followers() {
			c.Net.LoseAbove(leader.Name, n.Name, 600)
		}
		large := later(leader, "APPEND", "large", strings.Repeat("x", 20<<10))
		time.Sleep(6 * time.Second)
		synctest.Wait()
		require.True(t, begun.Load())
		require.False(t, handled.Load())
		leader.Crash()
		require.True(t, handled.Load())
		<-large
	})
}

// TestLeaderOfAHungDiskIsNotGivenUp: the other voters have the entries that the leader's own disk lacks. Such a
// leadership is not given up: the watchdog of the disk decides whether the process ends.
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

// TestSlowLeaderKeepsItsLeadership: a leader keeps its leadership while its entries take long on slow links.
func TestSlowLeaderKeepsItsLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := replicatest.New(t, replicatest.Options{Nodes: 3})
		leader := c.Leader()
		for _, n := range c.Followers() {
			c.Net.Limit(leader.Name, n.Name, 130<<10)
		}
		for range 20 { // each is acknowledged in time, and all together take longer than that
			later(leader, "SET", "large", strings.Repeat("x", 50<<10))
		}
		time.Sleep(20 * time.Second)
		require.Equal(t, leader, c.Leader())
		require.Empty(t, events[replica.LeadershipGivenUp](leader))
	})
}

// TestTransfersThatFail: repeated transfers to a node that the leader cannot reach fail with an error. The leader
// continues to serve, and also serves when it leads again later.
func TestTransfersThatFail(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, to := c.Leader(), c.Followers()[0]
		c.Net.Cut(leader.Name, to.Name)
		for range 3 {
			require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
			err := leader.Replica().TransferLeadership(t.Context(), to.ID)
			require.ErrorContains(t, err, to.Name+" has the log up to ")
			require.Same(t, leader, c.Leader())
		}
		require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
		c.Net.Isolate(leader.Name)
		time.Sleep(5 * time.Second)
		c.Net.Heal()
		require.NotSame(t, leader, c.Leader())
		c.Settle()
		lead(t, c, leader)
		require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
	})
}
