package replica_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

// needsSnapshot crashes a follower, and has the leader take a snapshot, without which the follower cannot catch up. It
// returns both.
func needsSnapshot(t *testing.T, c *replicatest.Cluster) (leader, n *replicatest.Node) {
	t.Helper()
	leader, n = c.Leader(), c.Followers()[0]
	n.Crash()
	c.Fill(60)
	c.Settle()
	require.NoError(t, leader.Replica().TakeSnapshot())
	return leader, n
}

// TestDamagedSnapshotIsReplaced: the leader's newest snapshot is damaged, with or without entries applied after it. The
// leader takes another when a member needs it, and reports the damage once.
func TestDamagedSnapshotIsReplaced(t *testing.T) {
	for _, since := range []int{0, 3} {
		t.Run(fmt.Sprintf("applied since=%d", since), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := bySnapshot(t, 3, 1)
				leader, n := needsSnapshot(t, c)
				c.Fill(since)
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
				c.Fill(1)
				requireFollows(t, c, n)
				require.Equal(t, leader, c.Leader())
				damaged := events[replica.SnapshotDamaged](leader)
				require.Len(t, damaged, 1)
				require.ErrorContains(t, damaged[0].Err, "is damaged")
				require.Len(t, events[replica.SnapshotTaken](leader), taken+1)
			})
		})
	}
}

// TestDamagedSnapshotAtAStart: at a start, a damaged snapshot is replaced by another node's state. The node keeps its
// log and its term, so all that it has acknowledged.
func TestDamagedSnapshotAtAStart(t *testing.T) {
	for name, row := range map[string]struct {
		trailing uint64
		since    int // entries after the snapshots
		alone    bool
	}{
		"long log": {30, 5, false}, "short log": {1, 5, false}, "nothing but the snapshot": {1, 0, false},
		"the others have older ones": {1, 5, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := bySnapshot(t, 3, row.trailing)
				c.Fill(10)
				c.Settle()
				snapshotAll(t, c)
				c.Fill(50)
				c.Settle()
				damaged := []*replicatest.Node{c.Followers()[0], c.Leader()}
				if row.alone {
					damaged = damaged[:1]
					require.NoError(t, damaged[0].Replica().TakeSnapshot())
				} else {
					snapshotAll(t, c)
				}
				c.Fill(row.since)
				for _, n := range damaged {
					n.Crash()
					require.NoError(t, n.Disk.RotSnapshots())
					c.Fill(3)
					n.Start()
					requireFollows(t, c, n)
					require.Equal(t, 1, n.Mended)
					n.PowerCut(1)
					n.Start()
					requireFollows(t, c, n)
					require.Equal(t, 1, n.Mended)
				}
			})
		})
	}
}

// TestDamagedSnapshotsAtRandom: a follower is cut off while the others acknowledge more writes. Then all nodes lose
// their power. The follower starts first. Next starts a node whose snapshots are damaged, which uses the follower's
// state if that is enough. These two then lead, and must have all acknowledged writes.
func TestDamagedSnapshotsAtRandom(t *testing.T) {
	early, late, seeds := 0, 0, uint64(12)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 24))
			c := bySnapshot(t, 3, 1+rng.Uint64N(12))
			acknowledged := 0
			write := func(count int) {
				for range count {
					if v := c.Leader().Do("SET", fmt.Sprint("a", acknowledged), "v"); v.Str == "OK" && !v.IsError() {
						acknowledged++
					}
				}
			}
			write(3)
			for range 8 {
				behind := c.Followers()[rng.IntN(2)]
				c.Net.Isolate(behind.Name)
				write(rng.IntN(20))
				for _, n := range c.Nodes() {
					if rng.IntN(3) == 0 {
						_ = n.Replica().TakeSnapshot() // there may be nothing new
					}
				}
				write(rng.IntN(5))
				var others []*replicatest.Node
				for _, n := range c.Nodes() {
					n.PowerCut(rng.Uint64())
					if n != behind {
						others = append(others, n)
					}
				}
				heal(c)
				damaged, last := others[0], others[1]
				if rng.IntN(2) == 0 {
					damaged, last = last, damaged
				}
				_ = damaged.Disk.RotSnapshots() // it may have none
				behind.Start()
				before := damaged.Mended
				if damaged.TryStart() != nil {
					last.Start()
					c.Leader()
					damaged.Start()
					late += damaged.Mended - before
				} else {
					early += damaged.Mended - before
					for i := range acknowledged {
						require.Equal(t, "v", c.Leader().Do("GET", fmt.Sprint("a", i)).Str, "seed %d: %d of %d", seed, i, acknowledged)
					}
					last.Start()
				}
				c.Settle()
			}
		})
	}
	require.NotZero(t, early)
	require.NotZero(t, late)
}
