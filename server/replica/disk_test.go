package replica_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

// TestFullDisks: while the disk of the leader is nearly full, or the disks of so many others that no majority has room,
// every node refuses data. Deletions go on, and the bytes of entries are limited. When there is room again, data is
// taken. A leader without room transfers its leadership if a majority has room.
func TestFullDisks(t *testing.T) {
	inBubble(t, patience, func(t *testing.T, c *replicatest.Cluster) {
		leader, followers := c.Leader(), c.Followers()
		free := make(map[*replicatest.Node]uint64)
		roomOfDisk := uint64(0) // unknown
		note := func(n *replicatest.Node, bytes uint64) {
			free[n] = bytes
			for range 4 { // until status messages have reached all nodes
				for n, bytes := range free {
					n.Replica().NoteSpace(bytes, roomOfDisk)
				}
				time.Sleep(time.Second)
			}
		}
		refused := func(yes bool, why string) {
			t.Helper()
			for _, n := range c.Nodes() {
				require.Equal(t, yes, n.Replica().DiskFull(), "%s: %s", n.Name, why)
				reply := protocol.OK
				if yes {
					reply = protocol.ErrDiskFull.Value()
				}
				require.Equal(t, reply, n.Do("SET", "k", "v"), why)
				require.False(t, n.Do("DEL", "k").IsError())
			}
		}
		refused(false, "nobody knows")
		require.Equal(t, protocol.OK, leader.Do("SET", "state", "of some bytes"))
		for _, n := range c.Nodes() {
			note(n, 0)
			free, reserve := n.Replica().Space()
			require.Zero(t, free+reserve, "no reserve is reported while the size of the disk is unknown")
		}
		roomOfDisk = 1 << 40
		for _, n := range c.Nodes() {
			free[n] = roomOfDisk
		}
		note(followers[0], 1)
		refused(false, "a majority has room")
		note(followers[1], 1)
		refused(true, "a leader with room is no majority")
		began := time.Now()
		require.False(t, leader.Do("DEL", strings.Repeat("k", replica.FullBytesPerSecond/8)).IsError())
		require.False(t, leader.Do("DEL", "k").IsError())
		require.GreaterOrEqual(t, time.Since(began), time.Second/8)
		for _, m := range leader.Replica().Status().Members {
			require.Equal(t, m.Name != leader.Name, m.DiskFull)
		}
		note(followers[0], roomOfDisk)
		refused(false, "a majority has room again")
		note(leader, 1)
		refused(true, "the leader writes first")
		var last replica.DiskFull
		for _, e := range followers[0].Events() {
			if e, is := e.(replica.DiskFull); is {
				last = e
			}
		}
		require.ElementsMatch(t, []string{leader.Name, followers[1].Name}, last.Members)
		require.True(t, last.Refuses)
		followers[1].Crash()
		followers[1].Start()
		free[followers[1]] = roomOfDisk
		note(leader, roomOfDisk)
		refused(false, "all have room")
		leader = c.Leader()
		note(leader, 1)
		require.NotEqual(t, leader, c.Leader())
		refused(false, "a majority has room, and one of them leads")
	})
}
