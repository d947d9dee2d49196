package replica_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

// TestTooManyWait: the batches that wait on a node are bounded. A batch that is refused was not applied.
func TestTooManyWait(t *testing.T) {
	few := func(c *replica.Config) { c.Limits.PendingBatches = 3 }
	inBubble(t, few, func(t *testing.T, c *replicatest.Cluster) {
		follower := c.Followers()[0]
		c.Leader()
		c.Net.Isolate(follower.Name)
		time.Sleep(time.Second)
		var waiting []<-chan protocol.Value
		for range 3 {
			waiting = append(waiting, later(follower, "INCR", "n"))
		}
		time.Sleep(time.Millisecond)
		require.Equal(t, protocol.ErrBusy.Value(), follower.Do("INCR", "n"))
		c.Net.Heal()
		var sum int64
		for _, w := range waiting {
			sum += (<-w).Num
		}
		require.Equal(t, int64(1+2+3), sum)
		require.Equal(t, protocol.Bulk("3"), follower.Do("GET", "n"))
	})
}

// TestSizes: a batch above the size limit of an entry is alone in its entry. A batch above the limit of batches is
// refused on every node, and so is a forwarded reply above its limit.
func TestSizes(t *testing.T) {
	small := func(c *replica.Config) {
		c.Limits.EntryBytes, c.Limits.BatchBytes, c.Limits.ReplyBytes = 1000, 3<<20, 1<<20
	}
	inBubble(t, small, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		for _, n := range []*replicatest.Node{leader, follower} {
			require.Equal(t, protocol.OK, n.Do("SET", "big", strings.Repeat("x", 2<<20)))
			require.Contains(t, n.Do("SET", "bigger", strings.Repeat("x", 4<<20)).Str, "too large")
			require.Equal(t, protocol.Integer(2<<20), n.Do("STRLEN", "big"))
		}
		require.Len(t, leader.Do("GET", "big").Str, 2<<20)
		require.Contains(t, follower.Do("GET", "big").Str, "too large to be forwarded")
		// A write's reply comes from the node's own log, so it may have any size.
		require.Len(t, follower.Do("GETDEL", "big").Str, 2<<20)
	})
}

// TestLargeBatchMayWaitAlone: an empty queue takes a batch of any size, so no limit of the queue excludes a batch for
// good.
func TestLargeBatchMayWaitAlone(t *testing.T) {
	small := func(c *replica.Config) { c.Limits.PendingBytes = 1000 }
	inBubble(t, small, func(t *testing.T, c *replicatest.Cluster) {
		large := strings.Repeat("x", 10_000)
		for _, n := range []*replicatest.Node{c.Leader(), c.Followers()[0], c.Followers()[1]} {
			for range 3 {
				require.Equal(t, protocol.OK, n.Do("SET", large, n.Name))
				require.Equal(t, protocol.Bulk(n.Name), n.Do("GET", large))
			}
		}
	})
}

// TestWaitReplicated: WaitReplicated returns how many other nodes have what was written, on the leader and on a
// follower.
func TestWaitReplicated(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		follower, away := c.Followers()[0], c.Followers()[1]
		for _, n := range []*replicatest.Node{leader, follower} {
			require.Equal(t, protocol.OK, n.Do("SET", "k", "v"))
			require.Equal(t, 2, n.Replica().WaitReplicated(t.Context(), 2, time.Second))
		}
		away.Crash()
		for _, n := range []*replicatest.Node{leader, follower} {
			require.Equal(t, protocol.OK, n.Do("SET", "k", "w"))
			start := time.Now()
			require.Equal(t, 1, n.Replica().WaitReplicated(t.Context(), 2, time.Second))
			require.InDelta(t, time.Second.Seconds(), time.Since(start).Seconds(), 0.1)
			require.Equal(t, 1, n.Replica().WaitReplicated(t.Context(), 1, 0))
		}
		away.Start()
		require.Equal(t, 2, follower.Replica().WaitReplicated(t.Context(), 5, time.Second))
		require.Equal(t, 2, leader.Replica().WaitReplicated(t.Context(), 2, 0))
	})
}

// TestWaitEndsWithTheLeader: a wait for replication ends with the leadership of the node that counts, also if a
// follower sent it there. Its result is the majority that every acknowledged write has.
func TestWaitEndsWithTheLeader(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		follower, away := c.Followers()[0], c.Followers()[1]
		require.Equal(t, protocol.OK, follower.Do("SET", "k", "v"))
		away.Crash()
		require.Equal(t, protocol.OK, follower.Do("SET", "k", "w"))
		nodes := make(chan int, 2)
		for _, n := range []*replicatest.Node{leader, follower} {
			go func() { nodes <- n.Replica().WaitReplicated(t.Context(), 2, 0) }()
		}
		time.Sleep(time.Minute)
		require.Empty(t, nodes)
		leader.Crash()
		require.Len(t, events[replica.LeadershipLost](leader), 1)
		time.Sleep(time.Minute)
		require.Len(t, nodes, 2)
		require.Equal(t, 1, <-nodes, "the least that is true")
		require.Equal(t, 1, <-nodes)
	})
}

// TestAddresses: every node knows the addresses of all nodes, for clients and for peers.
func TestAddresses(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		time.Sleep(3 * time.Second)
		for _, n := range c.Nodes() {
			s := n.Replica().Status()
			require.Equal(t, leader.Name+":6379", s.Leader.ClientAddr)
			require.Len(t, s.Members, 3)
			for _, m := range s.Members {
				require.Equal(t, m.Name+":6379", m.ClientAddr)
				require.Equal(t, m.Name+":7379", m.PeerAddr)
			}
			require.NoError(t, n.Replica().Healthy())
		}
	})
}

// TestReleases: every node knows the release of each member, unless the member's release does not report it. A long
// name is truncated.
func TestReleases(t *testing.T) {
	next := map[string]string{"n1": "0.2.1", "n2": "0.2.2"}
	inBubble(t, func(c *replica.Config) { c.Release = next[c.ID] }, func(t *testing.T, c *replicatest.Cluster) {
		releases := func(n *replicatest.Node) (all []string) {
			for _, m := range n.Replica().Status().Members {
				all = append(all, m.Release)
			}
			return all
		}
		time.Sleep(3 * time.Second)
		for _, n := range c.Nodes() {
			require.Equal(t, []string{"0.2.1", "0.2.2", ""}, releases(n))
		}
		moved := c.Followers()[0]
		moved.Crash()
		next[moved.ID] = strings.Repeat("x", 1000)
		moved.Start()
		c.Settle()
		time.Sleep(3 * time.Second)
		for _, n := range c.Nodes() {
			if n != moved {
				require.Contains(t, releases(n), strings.Repeat("x", 64), "%s: what runs now, cut to what is shown", n.Name)
			}
		}
	})
}

// TestHealth: a follower that lacks committed entries for long is unhealthy, and healthy again when it has them. The
// leader stays healthy.
func TestHealth(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		require.Equal(t, protocol.OK, follower.Do("SET", "k", "v"))
		c.Net.Isolate(follower.Name)
		require.Equal(t, protocol.OK, leader.Do("SET", "k", "w"))
		time.Sleep(10 * time.Second)
		require.Error(t, follower.Replica().Healthy())
		require.NoError(t, leader.Replica().Healthy())
		c.Net.Heal()
		time.Sleep(12 * time.Second)
		require.NoError(t, follower.Replica().Healthy())
	})
}

// TestFollowersAreThoseThatAnswer: the leader's status has the members that answer it, and the index of their logs.
func TestFollowersAreThoseThatAnswer(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower, away := c.Leader(), c.Followers()[0], c.Followers()[1]
		require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
		time.Sleep(time.Second)
		followers := func() (names []string) {
			s := leader.Replica().Status()
			for _, f := range s.Followers {
				names = append(names, f.Name)
				require.Equal(t, s.LastLog, f.LogIndex)
				require.Less(t, f.Silent, replica.DefaultElectionTimeout)
			}
			return names
		}
		require.Equal(t, []string{follower.Name, away.Name}, followers())
		require.Empty(t, follower.Replica().Status().Followers, "it does not lead")
		away.Crash()
		time.Sleep(replica.DefaultElectionTimeout)
		require.Equal(t, protocol.OK, leader.Do("SET", "k", "w"))
		require.Equal(t, []string{follower.Name}, followers())
		away.Start()
		time.Sleep(time.Second)
		require.Equal(t, []string{follower.Name, away.Name}, followers())
	})
}

// TestOwnWritesAreInTheStateOfTheNode: the leader's reply to a follower's client may arrive before the follower has
// applied the write. After AwaitApplied, the follower's state has the write.
func TestOwnWritesAreInTheStateOfTheNode(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		write := func(word string) *replica.Batch {
			u := replicatest.Batch([]string{"SET", word, "v"})
			require.NoError(t, follower.Replica().Execute(u))
			return u
		}
		keys := func() int { return follower.Replica().Stats().Keys[0] }
		behind := 0
		for i := range 50 {
			u := write(fmt.Sprint("k", i))
			if keys() == i {
				behind++
			}
			follower.Replica().AwaitApplied(t.Context(), u.Number)
			require.Equal(t, i+1, keys())
		}
		require.Positive(t, behind, "without waiting it was not there")
		start := time.Now()
		follower.Replica().AwaitApplied(t.Context(), 0)
		leader.Replica().AwaitApplied(t.Context(), 0)
		require.Zero(t, time.Since(start), "nothing was written")

		u := write("last")
		follower.Replica().AwaitApplied(t.Context(), u.Number)
		follower.Replica().AwaitApplied(t.Context(), u.Number+1)
		require.Equal(t, replica.DefaultCommandTimeout, time.Since(start).Truncate(replica.DefaultCommandTimeout),
			"a node that is behind is not waited for without end")
		start = time.Now()
		time.AfterFunc(time.Second, follower.Crash)
		require.False(t, follower.Replica().AwaitApplied(t.Context(), u.Number+1))
		require.Equal(t, time.Second, time.Since(start), "the wait ends with the node")
	})
}

// TestRequestsOfTheNodeItself: requests of the node itself fail if any of their replies is an error.
func TestRequestsOfTheNodeItself(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		n := c.Followers()[0]
		set, incr := []string{"SET", "k", "v"}, []string{"INCR", "k"}
		require.NoError(t, n.Replica().ProposeOwn(replicatest.Batch(set, set)))
		require.ErrorContains(t, n.Replica().ProposeOwn(replicatest.Batch(set, incr, set)), "not an integer")
		c.Net.Isolate(n.Name)
		require.ErrorIs(t, n.Replica().ProposeOwn(replicatest.Batch(set)), protocol.ErrUncertain)
	})
}

// TestLocksAreCountedByClass: locks are counted by the configured patterns.
func TestLocksAreCountedByClass(t *testing.T) {
	inBubble(t, func(c *replica.Config) { c.LockClasses = []string{"job:*"} },
		func(t *testing.T, c *replicatest.Cluster) {
			leader := c.Leader()
			require.Equal(t, protocol.Integer(1), leader.Do("LOCK.ACQUIRE", "job:1", "me", "PX", "1000"))
			classes := leader.Replica().LockClasses()
			require.Equal(t, "job:*", classes[0].Pattern)
			require.Equal(t, uint64(1), classes[0].Native.Grants)
		})
}
