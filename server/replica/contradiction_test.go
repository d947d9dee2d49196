package replica_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/store/storetest"
)

// forget has the leader and a follower acknowledge a write, and then gives the follower an older copy of its disk. The
// other two nodes elect a leader without the write. forget returns the former leader, which has applied the write, and
// is cut off.
func forget(t *testing.T, c *replicatest.Cluster, captured bool) *replicatest.Node {
	t.Helper()
	old, forgetful, away := c.Leader(), c.Followers()[0], c.Followers()[1]
	forgetful.Crash()
	disk := forgetful.Disk.Copy()
	forgetful.Start()
	requireFollows(t, c, forgetful)
	away.Crash()
	require.Equal(t, protocol.OK, old.Do("SET", "acknowledged", "v"))
	c.Settle(old, forgetful)
	if captured {
		require.NoError(t, old.Replica().TakeSnapshot())
	}
	c.Net.Isolate(old.Name)
	forgetful.Crash()
	forgetful.Disk, forgetful.LosesLog = disk, true
	forgetful.Start()
	away.Start()
	return old
}

// ends waits until n has ended by itself.
func ends(t *testing.T, n *replicatest.Node) {
	t.Helper()
	for range 1000 {
		if n.Replica() == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	require.FailNow(t, "the node still runs", n.Name)
}

// TestAppliedEntriesAreNotReplaced: a node ends if a leader would replace entries that the node has applied, since its
// state would differ for good. After a restart it has applied none of them, and follows. If they are in its snapshot,
// it ends at each start.
func TestAppliedEntriesAreNotReplaced(t *testing.T) {
	for _, captured := range []bool{false, true} {
		for _, trailing := range []uint64{1, 100} {
			t.Run(fmt.Sprintf("captured=%v/trailing=%v", captured, trailing), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := bySnapshot(t, 3, trailing)
					c.Fill(5)
					old := forget(t, c, captured)
					last := old.Replica().Status().LastLog
					for leader := c.Leader(); leader == old; leader = c.Leader() {
						time.Sleep(10 * time.Millisecond)
					}
					require.GreaterOrEqual(t, old.Replica().Status().Applied, last)
					heal(c)
					ends(t, old)
					require.ErrorContains(t, old.Err(), "members have lost entries that they had acknowledged")

					old.Start()
					if captured {
						ends(t, old)
						require.ErrorContains(t, old.Err(), "members have lost entries that they had acknowledged")
						return
					}
					requireFollows(t, c, old)
				})
			})
		}
	}
}

// TestShortenedLog: the leader reports once that a member has lost entries that it had acknowledged, and refuses the
// member. A member that was killed or lost its power has lost nothing, and is not reported.
func TestShortenedLog(t *testing.T) {
	for name, row := range map[string]struct {
		put     func(n *replicatest.Node, copied *storetest.Disk)
		reports int
	}{
		"lost":      {func(n *replicatest.Node, copied *storetest.Disk) { n.Crash(); n.Disk, n.LosesLog = copied, true }, 1},
		"killed":    {func(n *replicatest.Node, _ *storetest.Disk) { n.Crash() }, 0},
		"power cut": {func(n *replicatest.Node, _ *storetest.Disk) { n.PowerCut(1) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := bySnapshot(t, 3, 100)
				leader, n := c.Leader(), c.Followers()[0]
				c.Fill(5)
				n.Crash()
				copied := n.Disk.Copy()
				kept := leader.Replica().Status().LastLog
				n.Start()
				c.Fill(10)
				requireFollows(t, c, n)
				last := leader.Replica().Status().LastLog
				row.put(n, copied)
				n.Start()
				require.Equal(t, leader, c.Leader())
				if row.reports == 0 {
					requireFollows(t, c, n)
				} else {
					ends(t, n)
					require.ErrorIs(t, n.Deaths()[0], incarnation.ErrSuperseded)
				}
				time.Sleep(3 * time.Second)
				shortened := events[replica.LogShortened](leader)
				require.Len(t, shortened, row.reports)
				for _, e := range shortened {
					require.Equal(t, n.Name, e.Name)
					require.LessOrEqual(t, e.LogIndex, kept)
					require.GreaterOrEqual(t, e.Acknowledged, last)
				}
			})
		})
	}
}
