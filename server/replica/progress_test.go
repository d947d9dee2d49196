package replica_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/store"
)

// busy has the leader commit an entry every 100 ms.
func busy(t *testing.T, n *replicatest.Node, during time.Duration) {
	t.Helper()
	for i := range int(during / (100 * time.Millisecond)) {
		require.Equal(t, protocol.OK, n.Do("SET", fmt.Sprint("k", i), "v"))
		time.Sleep(100 * time.Millisecond)
	}
}

// stalledNames returns the names of the followers that are stalled in the leader's status.
func stalledNames(n *replicatest.Node) (names []string) {
	for _, s := range n.Replica().Status().Stalled {
		names = append(names, s.Name)
	}
	return names
}

// TestFollowerWithoutProgress: for any fault that stops the growth of a follower's log, the leader emits one event,
// shows the follower in its status, and emits one event when the log grows again. Meanwhile the follower is unhealthy.
func TestFollowerWithoutProgress(t *testing.T) {
	tests := map[string]func(c *replicatest.Cluster, n *replicatest.Node) (undo func()){
		"hanging disk": func(_ *replicatest.Cluster, n *replicatest.Node) func() {
			return n.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Hang: true})
		},
		"refused appends": func(_ *replicatest.Cluster, n *replicatest.Node) func() {
			return n.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Err: syscall.EIO})
		},
		"cut off": func(c *replicatest.Cluster, n *replicatest.Node) func() {
			c.Net.Isolate(n.Name)
			return func() { heal(c) }
		},
		"dead": func(_ *replicatest.Cluster, n *replicatest.Node) func() {
			n.Crash()
			return n.Start
		},
	}
	for name, stop := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := replicatest.New(t, replicatest.Options{})
				slow(c)
				leader, n := c.Leader(), c.Followers()[0]
				busy(t, leader, 5*time.Second)
				at := leader.Replica().Status().Committed
				began := time.Now()
				undo := stop(c, n)
				busy(t, leader, 2500*time.Millisecond)
				require.Empty(t, events[replica.FollowerStalled](leader), "it may be slow")
				busy(t, leader, 20*time.Second)
				stalled := events[replica.FollowerStalled](leader)
				require.Len(t, stalled, 1)
				require.Equal(t, n.Name, stalled[0].Name)
				require.Equal(t, at, stalled[0].LogIndex)
				require.Greater(t, stalled[0].Committed, at+20)
				require.WithinRange(t, stalled[0].Since, began, began.Add(1100*time.Millisecond))
				shown := leader.Replica().Status().Stalled
				require.Len(t, shown, 1)
				require.Equal(t, n.Name, shown[0].Name)
				require.Equal(t, at, shown[0].LogIndex)
				require.Equal(t, time.Since(stalled[0].Since), shown[0].For)
				require.Empty(t, c.Followers()[0].Replica().Status().Stalled, "it does not lead")
				require.Empty(t, events[replica.FollowerMoves](leader))
				require.NoError(t, leader.Replica().Healthy())
				if n.Replica() != nil {
					require.Error(t, n.Replica().Healthy(), "the follower's log does not grow")
				}

				undo()
				busy(t, leader, 15*time.Second)
				moves := events[replica.FollowerMoves](leader)
				require.Len(t, moves, 1)
				require.Equal(t, n.Name, moves[0].Name)
				require.Greater(t, moves[0].LogIndex, at)
				require.Greater(t, moves[0].After, 20*time.Second)
				require.Len(t, events[replica.FollowerStalled](leader), 1)
				require.Empty(t, stalledNames(leader))
				require.NoError(t, n.Replica().Healthy())
			})
		})
	}
}

// TestFollowersWithProgress: a leader reports no follower as stalled while nothing is committed, if the follower is
// slow, or if it was down for a moment.
func TestFollowersWithProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := replicatest.New(t, replicatest.Options{})
		slow(c)
		leader, n := c.Leader(), c.Followers()[0]
		time.Sleep(time.Minute)

		// The isolated follower has all that is committed.
		c.Net.Isolate(n.Name)
		time.Sleep(time.Minute)
		heal(c)
		time.Sleep(10 * time.Second)

		undo := n.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Delay: 900 * time.Millisecond})
		busy(t, leader, 30*time.Second)
		require.Greater(t, leader.Replica().Status().Committed, n.Replica().Status().LastLog, "the follower lags")
		require.NoError(t, n.Replica().Healthy(), "a follower whose log grows is healthy")
		undo()
		busy(t, leader, 3*time.Second)

		for range 5 {
			n.Crash()
			busy(t, leader, time.Second)
			n.Start()
			busy(t, leader, time.Second)
		}
		require.Same(t, leader, c.Leader())
		require.Empty(t, events[replica.FollowerStalled](leader))
		require.Empty(t, stalledNames(leader))
	})
}

// TestFollowersOfAnotherLeader: each leadership finds stalled followers by itself. A new leader emits the event again,
// and a former one shows none.
func TestFollowersOfAnotherLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := replicatest.New(t, replicatest.Options{})
		slow(c)
		first, n, next := c.Leader(), c.Followers()[0], c.Followers()[1]
		n.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Hang: true})
		busy(t, first, 8*time.Second)
		require.Equal(t, []string{n.Name}, stalledNames(first))

		lead(t, c, next)
		require.Empty(t, stalledNames(first))
		require.Empty(t, stalledNames(next))
		busy(t, next, 8*time.Second)
		require.Len(t, events[replica.FollowerStalled](next), 1)
		require.Equal(t, []string{n.Name}, stalledNames(next))

		lead(t, c, first)
		require.Empty(t, stalledNames(first))
		busy(t, first, 2*time.Second)
		require.Len(t, events[replica.FollowerStalled](first), 1)
		busy(t, first, 6*time.Second)
		require.Len(t, events[replica.FollowerStalled](first), 2)
		require.Empty(t, events[replica.FollowerMoves](first))
	})
}

// TestStatusForgetsFollowersThatMove: the status does not show a follower as stalled once its log has grown, even
// before the leader's next check.
func TestStatusForgetsFollowersThatMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := replicatest.New(t, replicatest.Options{})
		slow(c)
		leader, n := c.Leader(), c.Followers()[0]
		busy(t, leader, time.Second)
		undo := n.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Hang: true})
		busy(t, leader, 8*time.Second)
		shown := leader.Replica().Status().Stalled
		require.Len(t, shown, 1)
		undo()
		for {
			s := leader.Replica().Status()
			i := slices.IndexFunc(s.Followers, func(f replica.Follower) bool {
				return f.Name == n.Name && f.LogIndex > shown[0].LogIndex
			})
			if i >= 0 {
				require.Empty(t, s.Stalled)
				break
			}
			time.Sleep(time.Millisecond)
		}
	})
}

// TestFollowerCatchesUpOverASlowLink: a follower lacks many large entries, and gets them over a slow link that breaks
// now and then. No deadline is for a request as a whole, and entries that have arrived are not sent again.
func TestFollowerCatchesUpOverASlowLink(t *testing.T) {
	protocoltest.SkipShort(t, "hundreds of megabytes")
	const rate, entries, size = 512 << 10, 24, 1 << 20
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, away := c.Leader(), c.Followers()[0]
		c.Net.Isolate(away.Name)
		for i := range entries {
			require.Equal(t, protocol.OK, leader.Do("SET", fmt.Sprint("k", i), strings.Repeat("x", size)))
		}
		want := leader.Replica().Status().LastLog
		c.Net.Limit(leader.Name, away.Name, rate)
		c.Net.Rejoin(away.Name)
		seconds := 0
		for ; away.Replica().Status().LastLog < want; seconds++ {
			require.Less(t, seconds, 3*entries*size/rate)
			if seconds%20 == 19 { // a third of the bytes takes 16 s
				c.Net.Break(leader.Name, away.Name)
			}
			time.Sleep(time.Second)
		}
		require.Greater(t, seconds, entries*size/rate-1, "the link is slow")
		require.Equal(t, leader, c.Leader())
		c.Net.Limit(leader.Name, away.Name, 0)
		c.Settle()
	})
}

// TestLargeEntriesFromTheDisk: large entries that are in no node's memory any more reach a follower that was down, and,
// at a start, each node's state.
func TestLargeEntriesFromTheDisk(t *testing.T) {
	protocoltest.SkipShort(t, "hundreds of megabytes")
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, away := c.Leader(), c.Followers()[0]
		away.Crash()
		for i := range 40 {
			require.Equal(t, protocol.OK, leader.Do("SET", fmt.Sprint("k", i), strings.Repeat("x", 300<<10+i)))
		}
		away.Start()
		c.Settle()
		require.Equal(t, 40, away.Replica().Stats().Keys[0])
		require.Empty(t, events[replica.Restored](away))
		for _, n := range c.Nodes() {
			n.Crash()
		}
		for _, n := range c.Nodes() {
			n.Start()
		}
		for i := range 40 {
			require.Equal(t, protocol.Integer(300<<10+int64(i)), c.Leader().Do("STRLEN", fmt.Sprint("k", i)))
		}
		c.Settle()
	})
}
