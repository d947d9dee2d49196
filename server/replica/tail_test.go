package replica_test

import (
	"fmt"
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

// bySnapshot starts a cluster in which snapshots are taken on command and trailing entries stay behind them. Messages
// take a moment, so that nodes that go round in circles do not stop virtual time.
func bySnapshot(t *testing.T, nodes int, trailing uint64) *replicatest.Cluster {
	t.Helper()
	c := replicatest.New(t, replicatest.Options{Nodes: nodes, Configure: func(c *replica.Config) {
		c.TrailingLogs = trailing
	}})
	slow(c)
	return c
}

// slow makes entries take virtual time: none passes while a test's goroutine is delayed between two looks.
func slow(c *replicatest.Cluster) { slowBy(c, time.Millisecond) }

// slowBy delays everything between nodes, one way.
func slowBy(c *replicatest.Cluster, delay time.Duration) {
	for _, a := range c.Nodes() {
		for _, b := range c.Nodes() {
			if a != b {
				c.Net.Delay(a.Name, b.Name, delay)
			}
		}
	}
}

func heal(c *replicatest.Cluster) {
	c.Net.Heal()
	slow(c)
}

func snapshotAll(t *testing.T, c *replicatest.Cluster) {
	t.Helper()
	for _, n := range c.Nodes() {
		if r := n.Replica(); r != nil {
			require.NoError(t, r.TakeSnapshot())
		}
	}
}

// requireFollows requires that n has applied all that its leader has, within a few seconds.
func requireFollows(t *testing.T, c *replicatest.Cluster, n *replicatest.Node) {
	t.Helper()
	for range 100 {
		if n.Replica().Status().Applied == c.Leader().Replica().Status().LastLog {
			c.Settle()
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	require.FailNow(t, "it does not follow", "at %d of %d", n.Replica().Status().Applied,
		c.Leader().Replica().Status().LastLog)
}

// returnBySnapshot makes n one whose log is empty behind the snapshot that it was sent.
func returnBySnapshot(t *testing.T, c *replicatest.Cluster, n *replicatest.Node) {
	t.Helper()
	n.Crash()
	c.Fill(60)
	c.Settle()
	snapshotAll(t, c)
	n.Start()
	requireFollows(t, c, n)
	require.NotEmpty(t, events[replica.Restored](n))
}

// A follower that came back by a snapshot takes an entry that its leader does not survive; the next leader has
// another entry in its place.
func TestTailBehindASnapshot(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		for _, trailing := range []uint64{1, 20} {
			for _, restarts := range []bool{false, true} {
				t.Run(fmt.Sprintf("nodes=%d/trailing=%d/restarts=%v", nodes, trailing, restarts), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						c := bySnapshot(t, nodes, trailing)
						n := c.Followers()[0]
						returnBySnapshot(t, c, n)
						loseLeaderWithTail(t, c, n)
						if restarts {
							n.Crash()
							n.Start()
						}
						heal(c)
						requireFollows(t, c, n)
						require.Equal(t, protocol.Bulk("kept"), n.Do("GET", "k"))
						require.Equal(t, protocol.Null, n.Do("GET", "lost"))
					})
				})
			}
		}
	}
}

// loseLeaderWithTail has n take an entry that no other node keeps, and the others elect a leader without it.
// n is cut off afterwards.
func loseLeaderWithTail(t *testing.T, c *replicatest.Cluster, n *replicatest.Node) {
	t.Helper()
	leader := c.Leader()
	before := n.Replica().Status().LastLog
	for _, other := range c.Nodes() {
		if other != leader && other != n {
			other.Crash()
		}
	}
	// The entry goes to the leader's disk and to its followers at the same time, and does not get onto the disk.
	leader.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Delay: 100 * time.Millisecond, Err: syscall.EIO, Count: 1})
	reply := later(leader, "SET", "lost", "v")
	for n.Replica().Status().LastLog == before {
		time.Sleep(time.Millisecond)
	}
	c.Net.Isolate(n.Name)
	require.True(t, (<-reply).IsError())
	leader.Crash()
	for _, other := range c.Nodes() {
		if other != n {
			other.Start()
		}
	}
	require.Equal(t, before+1, n.Replica().Status().LastLog)
	require.Equal(t, protocol.OK, c.Leader().Do("SET", "k", "kept"))
}

// A leader was cut off with entries that only it has. When it returns, the cluster's snapshot ends before these do,
// with them, or behind them; what it has at the snapshot's end is another entry.
func TestSnapshotIntoAConflictingTail(t *testing.T) {
	protocoltest.SkipShort(t, "many orders of events")
	for tail := range 8 {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("tail=%d/restarts=%v", tail, restarts), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := bySnapshot(t, 3, 1)
					c.Fill(10)
					c.Settle()
					old := c.Leader()
					c.Net.Isolate(old.Name)
					for range tail {
						empty := protocol.NewEntry(nil, protocol.EntryVersion, 0, 0, protocol.EntryLimits{})
						old.Replica().Propose(old.Replica().Status().Term, empty.Bytes())
					}
					time.Sleep(5 * time.Second)
					c.Fill(2)
					for _, n := range c.Nodes() {
						if n != old {
							for r := n.Replica(); r.Status().Applied < c.Leader().Replica().Status().LastLog; {
								time.Sleep(time.Millisecond)
							}
							require.NoError(t, n.Replica().TakeSnapshot())
						}
					}
					// Nothing is under way any more that says where the old leader's log could go on.
					for _, n := range c.Nodes() {
						if n != old || restarts {
							n.Crash()
						}
					}
					for _, n := range c.Nodes() {
						if n.Replica() == nil {
							n.Start()
						}
					}
					heal(c)
					requireFollows(t, c, old)
					c.Fill(1)
					requireFollows(t, c, old)
					require.NotEmpty(t, events[replica.Restored](old))
				})
			})
		}
	}
}

// A follower's disk refuses some appends. The leader takes each refusal for a log that does not fit, and goes back to
// before the follower's snapshot, and to a snapshot of its own that ends before that.
func TestLeaderGoesBackBehindASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := bySnapshot(t, 3, 1)
		leader, n := c.Leader(), c.Followers()[0]
		c.Fill(10)
		c.Settle()
		require.NoError(t, leader.Replica().TakeSnapshot())
		c.Fill(3)
		c.Settle()
		require.NoError(t, n.Replica().TakeSnapshot())
		n.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Err: syscall.EIO, Count: 8})
		c.Fill(1)
		requireFollows(t, c, n)
		require.Empty(t, events[replica.Restored](n))
	})
}

// The same with a leader that has never cut its log: it goes back to the first entry.
func TestLeaderGoesBackToTheFirstEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := bySnapshot(t, 3, 1)
		c.Fill(5)
		c.Settle()
		n := c.Followers()[0]
		require.NoError(t, n.Replica().TakeSnapshot())
		n.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Err: syscall.EIO, Count: 12})
		c.Fill(1)
		time.Sleep(2 * time.Minute) // raft pauses ever longer between two attempts
		requireFollows(t, c, n)
		require.Empty(t, events[replica.Restored](n))
	})
}
