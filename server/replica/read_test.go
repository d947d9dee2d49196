package replica_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/store"
)

// TestDeposedLeaderServesNoStaleRead: a deposed leader that does not know it yet serves no stale read, even if
// acknowledgements of requests from its own term arrive late. A leader that was frozen between sending and receiving is
// in the same situation.
func TestDeposedLeaderServesNoStaleRead(t *testing.T) {
	t.Run("round under way=false", func(t *testing.T) { require.False(t, deposedLeaderReads(t, false)) })
	t.Run("round under way=true", func(t *testing.T) {
		// Sometimes the check's heartbeats wait for the answers to earlier heartbeats, which the test holds back. Then
		// try again.
		for tries := 1; !deposedLeaderReads(t, true); tries++ {
			require.Less(t, tries, 20)
		}
	})
}

// deposedLeaderReads sends a read to a deposed leader that does not know it yet, and requires that the leader does not
// answer it from its own state. If underWay is set, an earlier read has begun a leadership check, and the check's
// acknowledgements from before the election arrive late. deposedLeaderReads reports whether they confirmed the earlier
// read.
func deposedLeaderReads(t *testing.T, underWay bool) (answered bool) {
	stubborn := func(c *replica.Config) {
		patience(c)
		if c.ID == "n1" {
			c.HeartbeatTimeout, c.LeaseTimeout = 1500*time.Millisecond, 1500*time.Millisecond
		}
	}
	inBubble(t, stubborn, func(t *testing.T, c *replicatest.Cluster) {
		old := c.Node("n1")
		lead(t, c, old)
		require.Equal(t, protocol.OK, old.Do("SET", "k", "old"))

		// First the acknowledgements are held back, then the leader's own packets as well.
		for _, n := range c.Followers() {
			c.Net.Cut(n.Name, old.Name)
		}
		var first <-chan protocol.Value
		if underWay {
			first = later(old, "GET", "k")
		}
		time.Sleep(200 * time.Millisecond)
		for _, n := range c.Nodes() {
			c.Net.Cut(old.Name, n.Name)
		}
		var next *replicatest.Node
		for next == nil {
			time.Sleep(10 * time.Millisecond)
			for _, n := range c.Nodes() {
				if n != old && n.Replica().Status().Leading {
					next = n
				}
			}
		}
		require.Equal(t, protocol.OK, next.Do("SET", "k", "new"))
		require.True(t, old.Replica().Status().Leading, "the test needs two leaders at once")

		reply := later(old, "GET", "k")
		synctest.Wait()
		for _, n := range c.Nodes() {
			if n != next { // any packet of the next leader would depose the old one
				c.Net.Mend(n.Name, old.Name) // the late acknowledgements arrive
			}
		}
		time.Sleep(100 * time.Millisecond)
		require.True(t, old.Replica().Status().Leading)
		answered = len(first) == 1
		require.Empty(t, reply, "answered by a deposed leader")
		c.Net.Heal()
		require.Equal(t, protocol.Bulk("new"), <-reply)
	})
	return answered
}

// TestReadsLeaveTheLogAlone: reads add no entry to the log.
func TestReadsLeaveTheLogAlone(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		require.Equal(t, protocol.OK, c.Leader().Do("SET", "k", "v"))
		before := c.Leader().Replica().Status().LastLog
		for _, n := range c.Nodes() {
			for range 100 {
				require.Equal(t, protocol.Bulk("v"), n.Do("GET", "k"))
			}
		}
		require.Equal(t, before, c.Leader().Replica().Status().LastLog)
	})
}

// TestReadThatCannotBeDecoded: a malformed batch of reads fails, on the leader and through a follower.
func TestReadThatCannotBeDecoded(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		for _, n := range []*replicatest.Node{c.Leader(), c.Followers()[0]} {
			u := replicatest.Batch([]string{"GET", "k"}, []string{"GET", "k"})
			u.Body = u.Body[:len(u.Body)-1]
			require.ErrorContains(t, n.Replica().Execute(u), "internal error")
		}
	})
}

// TestReadsSeeWrites: a read sees the writes before it in its batch, and the writes that any node acknowledged before
// it.
func TestReadsSeeWrites(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		c.Leader()
		for i, n := range c.Nodes() {
			other := c.Nodes()[(i+1)%len(c.Nodes())]
			replies, err := n.Execute([]string{"GET", "k"}, []string{"SET", "k", n.Name}, []string{"GET", "k"})
			require.NoError(t, err)
			require.Equal(t, protocol.Bulk(n.Name), replies[2])
			require.Equal(t, protocol.Bulk(n.Name), other.Do("GET", "k"))
		}
	})
}

// TestReadsWaitForNoHeartbeat: a read begins a leadership check at once, through any node, without waiting for the next
// heartbeat.
func TestReadsWaitForNoHeartbeat(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		for _, n := range c.Nodes() {
			require.Equal(t, protocol.OK, n.Do("SET", "k", n.Name))
			for range 10 {
				time.Sleep(7 * time.Millisecond)
				start := time.Now()
				require.Equal(t, protocol.Bulk(n.Name), n.Do("GET", "k"))
				require.Zero(t, time.Since(start))
			}
		}
	})
}

// TestReadWaitsForTheNextLeader: a read that waits for a leader is executed by the next leader, also on the node that
// becomes it.
func TestReadWaitsForTheNextLeader(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		require.Equal(t, protocol.OK, c.Leader().Do("SET", "k", "v"))
		followers := c.Followers()
		c.Leader().Crash()
		var replies []<-chan protocol.Value
		for _, n := range followers {
			replies = append(replies, later(n, "GET", "k"))
		}
		for _, reply := range replies {
			require.Equal(t, protocol.Bulk("v"), <-reply)
		}
	})
}

func TestSingleNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := replicatest.New(t, replicatest.Options{Nodes: 1})
		n := c.Leader()
		require.Equal(t, protocol.OK, n.Do("SET", "k", "v"))
		require.Equal(t, protocol.Bulk("v"), n.Do("GET", "k"))
		committed, known := n.Replica().Committed()
		require.True(t, known)
		require.Equal(t, n.Replica().Status().LastLog, committed)
		start := time.Now()
		n.Crash()
		n.Start()
		require.Equal(t, protocol.Bulk("v"), n.Do("GET", "k"))
		require.Less(t, time.Since(start), 500*time.Millisecond)
		require.Zero(t, n.Replica().WaitReplicated(t.Context(), 1, 10*time.Millisecond))
		require.NoError(t, n.Replica().Healthy())
		require.NoError(t, n.Stop())
		require.NoError(t, n.Err(), "the node was shut down")
	})
}

// TestReadWaitsForTheEndOfALease: a read of a key that is due, but not yet expired by a log entry, waits for that
// entry. So it agrees with earlier reads and with later writes.
func TestReadWaitsForTheEndOfALease(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		for _, n := range []*replicatest.Node{leader, follower} {
			require.Equal(t, protocol.OK, leader.Do("SET", "lease", "v", "PX", "100"))
			clear := leader.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Delay: 50 * time.Millisecond})
			time.Sleep(110 * time.Millisecond)
			start := time.Now()
			require.Equal(t, protocol.Null, n.Do("GET", "lease"))
			require.Greater(t, time.Since(start), 10*time.Millisecond)
			require.Equal(t, protocol.OK, n.Do("SET", "lease", "w", "NX"))
			clear()
			require.Equal(t, protocol.Integer(1), n.Do("DEL", "lease"))
		}
	})
}

// TestReadOfALeaseThatCannotEnd: a leader that can commit nothing answers a read of a key that is due after the command
// timeout.
func TestReadOfALeaseThatCannotEnd(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		require.Equal(t, protocol.OK, leader.Do("SET", "lease", "v", "PX", "100"))
		undo := leader.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Hang: true})
		time.Sleep(110 * time.Millisecond)
		start := time.Now()
		require.Equal(t, protocol.ErrNoLeader.Value(), leader.Do("GET", "lease"))
		require.Equal(t, replica.DefaultCommandTimeout, time.Since(start))
		undo()
		require.Equal(t, protocol.Null, leader.Do("GET", "lease"))
	})
}

// TestReadsDoNotWaitForTheGap: a read does not wait for the minimum interval between two entries that only end leases.
func TestReadsDoNotWaitForTheGap(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		for _, n := range []*replicatest.Node{leader, follower} {
			_, err := leader.Execute([]string{"SET", "first", "v", "PX", "100"}, []string{"SET", "second", "v", "PX", "102"})
			require.NoError(t, err)
			time.Sleep(103 * time.Millisecond)
			start := time.Now()
			require.Equal(t, protocol.Null, n.Do("GET", "second"))
			require.Less(t, time.Since(start), 5*time.Millisecond)
		}
	})
}

// TestReadWaitsForTheState: a leader executes a read only after it has applied all entries that were committed before.
func TestReadWaitsForTheState(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
		synctest.Wait() // the leader may still be working after its reply
		leader.Replica().ForgetApplied()
		reply := later(leader, "GET", "k")
		time.Sleep(100 * time.Millisecond)
		require.Empty(t, reply)
		require.Equal(t, protocol.OK, leader.Do("SET", "k", "w"))
		require.Equal(t, protocol.Bulk("w"), <-reply)
	})
}

// TestLeadershipIsLookedAtAfterTheRound: raft may have lost the leadership before the check began, and still send
// requests for a moment. The node's own vote is part of the majority. So the check asks raft at its end whether the
// node leads.
func TestLeadershipIsLookedAtAfterTheRound(t *testing.T) {
	inBubble(t, patience, func(t *testing.T, c *replicatest.Cluster) {
		r := c.Leader().Replica()
		require.NoError(t, r.CheckLeadership(t.Context(), func(uint64) bool { return true }))
		require.Error(t, r.CheckLeadership(t.Context(), func(uint64) bool { return false }))
	})
}

// TestReadsOfALeaderThatIsCutOff: a leader is cut off, and does not know yet that it is deposed. A read ends after the
// command timeout. A read that arrived during the first one's check ends at the same time.
func TestReadsOfALeaderThatIsCutOff(t *testing.T) {
	short := func(c *replica.Config) { c.CommandTimeout = 100 * time.Millisecond }
	inBubble(t, short, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
		c.Net.Isolate(leader.Name)
		begun, first := time.Now(), later(leader, "GET", "k")
		time.Sleep(50 * time.Millisecond)
		second := later(leader, "GET", "k")
		require.Equal(t, protocol.ErrNoLeader.Value(), <-first)
		require.Equal(t, protocol.ErrNoLeader.Value(), <-second)
		require.Equal(t, 100*time.Millisecond, time.Since(begun))
		require.True(t, leader.Replica().Status().Leading)
		c.Net.Heal()
		require.Equal(t, protocol.Bulk("v"), c.Leader().Do("GET", "k"))
	})
}

// TestReadsBehindALongScript: while the state machine runs a long script, reads time out as usual. When the script has
// ended, the reads that wait are answered at once, on the leader and through a follower.
func TestReadsBehindALongScript(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		const run, within = 4 * replica.DefaultCommandTimeout, replica.DefaultCommandTimeout
		leader, follower := c.Leader(), c.Followers()[0]
		require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
		leader.Replica().SlowDownBatches(run)
		start, script := time.Now(), later(leader, "INCR", "n")
		var reads sync.WaitGroup
		for i := range 39 {
			for _, n := range []*replicatest.Node{leader, follower} {
				reads.Go(func() {
					time.Sleep(time.Duration(2*i+1) * run / 80)
					began := time.Now()
					reply, took := n.Do("GET", "k"), time.Since(began)
					if time.Since(start) < run {
						require.Equal(t, protocol.ErrNoLeader.Value(), reply)
						require.InDelta(t, within, took, float64(within/30), "%s, after %v", n.Name, began.Sub(start))
					} else {
						require.Equal(t, protocol.Bulk("v"), reply)
						require.Equal(t, run, time.Since(start))
					}
				})
			}
		}
		reads.Wait()
		require.Equal(t, protocol.Integer(1), <-script)
	})
}
