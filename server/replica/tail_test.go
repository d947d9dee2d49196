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

// bySnapshot starts a cluster that takes snapshots only on command, and keeps trailing entries before each. Packets
// take a millisecond, so that a loop between nodes does not stop virtual time.
func bySnapshot(t *testing.T, nodes int, trailing uint64) *replicatest.Cluster {
	t.Helper()
	c := replicatest.New(t, replicatest.Options{Nodes: nodes, Configure: func(c *replica.Config) {
		c.TrailingLogs = trailing
	}})
	slow(c)
	return c
}

// slow delays all packets by a millisecond, so that no entry is committed while a test's goroutine is delayed between
// two checks.
func slow(c *replicatest.Cluster) { slowBy(c, time.Millisecond) }

// slowBy delays all packets between nodes, one way.
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

// requireFollows requires that n applies the leader's whole log within five seconds.
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

// returnBySnapshot has n restart, and get a snapshot, behind which its log is empty.
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

// TestTailBehindASnapshot: a follower that was restored from a snapshot stores an entry that is lost with its leader.
// The next leader has another entry at that index, and the follower takes it.
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

// loseLeaderWithTail has n store an entry that no other node keeps, and the others elect a leader without it.
// Afterwards n is isolated.
func loseLeaderWithTail(t *testing.T, c *replicatest.Cluster, n *replicatest.Node) {
	t.Helper()
	leader := c.Leader()
	before := n.Replica().Status().LastLog
	for _, other := range c.Nodes() {
		if other != leader && other != n {
			other.Crash()
		}
	}
	// The leader sends the entry while it writes it to its own disk. The write fails.
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

// TestSnapshotIntoAConflictingTail: a leader is cut off with entries that no other node has. When it returns, the
// cluster's snapshot ends before, within or after these entries. The former leader's entry at the end of the snapshot
// differs from the cluster's.
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
					// The restarts end all requests that say at which index the old leader's log can continue.
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

// TestLeaderGoesBackBehindASnapshot: a follower's disk refuses some appends. The leader takes each refusal for a
// conflict of the logs, and goes back to an index before the follower's snapshot, and then to its own snapshot, which
// ends even before. The follower follows without a restore.
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

// TestLeaderGoesBackToTheFirstEntry: as before, with a leader that still has its whole log, and goes back to the first
// entry.
func TestLeaderGoesBackToTheFirstEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := bySnapshot(t, 3, 1)
		c.Fill(5)
		c.Settle()
		n := c.Followers()[0]
		require.NoError(t, n.Replica().TakeSnapshot())
		n.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Err: syscall.EIO, Count: 12})
		c.Fill(1)
		time.Sleep(2 * time.Minute) // raft's pauses between attempts grow
		requireFollows(t, c, n)
		require.Empty(t, events[replica.Restored](n))
	})
}
