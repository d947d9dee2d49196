package replica_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/store"
)

// A lock that is released goes to who asked for it while the release waited for
// the same entry, whoever asked first and through whichever node.
func TestReleasedLockIsAcquiredInTheSameEntry(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		for _, n := range []*replicatest.Node{leader, c.Followers()[0]} {
			require.Equal(t, protocol.OK, leader.Do("SET", "lock", "a"))
			var clear []func()
			for _, each := range c.Nodes() {
				clear = append(clear, each.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Delay: 50 * time.Millisecond}))
			}
			before := later(leader, "INCR", "n") // is on its way while the others come
			time.Sleep(20 * time.Millisecond)
			acquired := later(n, "SET", "lock", "b", "NX")
			time.Sleep(20 * time.Millisecond)
			require.Equal(t, protocol.Integer(1), leader.Do("DEL", "lock"))
			require.Equal(t, protocol.OK, <-acquired)
			<-before
			for _, f := range clear {
				f()
			}
		}
	})
}

// Polls for a lock that somebody has wait for others right after an entry that was of
// use, a millisecond at most; where nothing happens they are refused at once.
func TestPollsLinger(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		lastLog := func() uint64 { return leader.Replica().Status().LastLog }
		refused := func() time.Duration {
			start := time.Now()
			require.Equal(t, protocol.Null, leader.Do("SET", "lock", "b", "NX"))
			return time.Since(start)
		}
		require.Equal(t, protocol.OK, leader.Do("SET", "lock", "a"))
		time.Sleep(time.Second)
		require.Zero(t, refused())
		require.Zero(t, refused())

		require.Equal(t, protocol.Integer(1), leader.Do("INCR", "n"))
		before, start := lastLog(), time.Now()
		acquired := later(leader, "SET", "lock", "b", "NX")
		synctest.Wait()
		require.Equal(t, before, lastLog())
		require.Equal(t, protocol.Integer(1), leader.Do("DEL", "lock"))
		require.Equal(t, protocol.OK, <-acquired)
		require.Equal(t, before+1, lastLog())
		require.Zero(t, time.Since(start))

		require.Equal(t, replica.DefaultLinger, refused())
		require.Zero(t, refused())

		require.Equal(t, protocol.Integer(2), leader.Do("INCR", "n"))
		before, start = lastLog(), time.Now()
		var polls []<-chan protocol.Value
		for _, n := range c.Nodes() {
			polls = append(polls, later(n, "SET", "lock", "c", "NX"))
			time.Sleep(200 * time.Microsecond)
			require.Equal(t, before, lastLog())
		}
		require.Equal(t, protocol.OK, c.Followers()[0].Do("SET", "third", "a", "NX"))
		for _, poll := range polls {
			require.Equal(t, protocol.Null, <-poll)
		}
		require.Equal(t, before+1, lastLog())
		require.Less(t, time.Since(start), replica.DefaultLinger)
		require.Equal(t, protocol.OK, leader.Do("SET", "other", "a", "NX"), "a lock that is free does not wait")
	})
}
