package replica_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

// needsSnapshot makes a follower one that only a snapshot of the leader can help, and returns both. The follower is down.
func needsSnapshot(t *testing.T, c *replicatest.Cluster) (leader, n *replicatest.Node) {
	t.Helper()
	leader, n = c.Leader(), c.Followers()[0]
	n.Crash()
	fill(t, c, 60)
	c.Settle()
	require.NoError(t, leader.Replica().TakeSnapshot())
	return leader, n
}

// A leader whose newest snapshot was damaged, whether anything was applied since or not, takes another when a member
// needs it, and tells of that once.
func TestDamagedSnapshotIsReplaced(t *testing.T) {
	for _, since := range []int{0, 3} {
		t.Run(fmt.Sprintf("applied since=%d", since), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := bySnapshot(t, 3, 1)
				leader, n := needsSnapshot(t, c)
				fill(t, c, since)
				taken := len(events[replica.SnapshotTaken](leader))
				require.NoError(t, leader.Disk.RotSnapshots())
				n.Start()
				for range 100 {
					if len(events[replica.Restored](n)) > 0 {
						break
					}
					time.Sleep(50 * time.Millisecond)
				}
				require.NotEmpty(t, events[replica.Restored](n))
				fill(t, c, 1)
				requireFollows(t, c, n)
				require.Equal(t, leader, c.Leader())
				told := events[replica.SnapshotDamaged](leader)
				require.Len(t, told, 1)
				require.ErrorContains(t, told[0].Err, "is damaged")
				require.Len(t, events[replica.SnapshotTaken](leader), taken+1)
			})
		})
	}
}
