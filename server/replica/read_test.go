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

// A leader that has been deposed, and does not know it, serves no stale read:
// not even when acknowledgements of what it sent while it still led arrive late.
// That is what a leader sees that was frozen between sending and receiving.
func TestDeposedLeaderServesNoStaleRead(t *testing.T) {
	t.Run("round under way=false", func(t *testing.T) { require.False(t, deposedLeaderReads(t, false)) })
	t.Run("round under way=true", func(t *testing.T) {
		// Now and then the round's heartbeats wait for the answers to those before, which are held up.
		for tries := 1; !deposedLeaderReads(t, true); tries++ {
			require.Less(t, tries, 20)
		}
	})
}

// deposedLeaderReads asks a leader that does not know yet that there is another. If underWay, a client has asked
// before, so that acknowledgements are on their way that came about before the other leader did. It
// reports whether these answered who asked before.
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

		// Acknowledgements are held up; then so is what it sends.
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
			if n != next { // whose word would tell the old leader at once
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

// Reads do not go through the log, nor do they make it grow.
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

// TestReadThatCannotBeDecoded fails, on the leader and through a follower.
func TestReadThatCannotBeDecoded(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		for _, n := range []*replicatest.Node{c.Leader(), c.Followers()[0]} {
			u := replicatest.Batch([]string{"GET", "k"}, []string{"GET", "k"})
			u.Body = u.Body[:len(u.Body)-1]
			require.ErrorContains(t, n.Replica().Execute(u), "internal error")
		}
	})
}

// A read sees what stands before it in its batch, and what was written before
// through any other node.
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

// TestReadsWaitForNoHeartbeat: a read has a round of its own at once, through whichever node it comes.
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

// A read that waits for a leader is answered by the next one, also on the node that becomes it.
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
		require.NoError(t, n.Err(), "it was told to end")
	})
}

// A read that comes when a lease is due, and the log has not ended it yet, waits
// until the log has: whatever was read before or is written after agrees with it.
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

// TestReadOfALeaseThatCannotEnd: a leader that commits nothing answers a read of what is due when the time is over.
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

// TestReadsDoNotWaitForTheGap between two entries that only end leases.
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

// A leader answers a read when it has applied what was committed before.
func TestReadWaitsForTheState(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
		synctest.Wait() // the leader may be busy with what follows the reply still
		leader.Replica().ForgetApplied()
		reply := later(leader, "GET", "k")
		time.Sleep(100 * time.Millisecond)
		require.Empty(t, reply)
		require.Equal(t, protocol.OK, leader.Do("SET", "k", "w"))
		require.Equal(t, protocol.Bulk("w"), <-reply)
	})
}

// A node whose raft led no more before the round began may still send for a moment, and its own vote is part of the
// majority: so the leadership is looked at again after the round.
func TestLeadershipIsLookedAtAfterTheRound(t *testing.T) {
	inBubble(t, patience, func(t *testing.T, c *replicatest.Cluster) {
		r := c.Leader().Replica()
		require.NoError(t, r.CheckLeadership(t.Context(), func(uint64) bool { return true }))
		require.Error(t, r.CheckLeadership(t.Context(), func(uint64) bool { return false }))
	})
}

// TestReadsOfALeaderThatIsCutOff: they end when a command's time is over, those that came while others waited as well,
// although the leader does not know yet that it leads no more.
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

// TestReadsBehindALongScript: a read is answered within the time of a command, and at once when the state machine has
// run the script, on the leader and through a follower.
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
