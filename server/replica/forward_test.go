package replica_test

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/store"
)

// mget returns an MGET that names the same key several times.
func mget(key string, times int) []string {
	words := []string{"MGET"}
	for range times {
		words = append(words, key)
	}
	return words
}

// links returns how often the node's link to the leader was made, and how often it was lost.
func links(n *replicatest.Node) (up, down int) {
	for _, e := range n.Events() {
		switch e.(type) {
		case replica.LinkUp:
			up++
		case replica.LinkDown:
			down++
		}
	}
	return up, down
}

// TestLargeReplyIsRefusedBeforeItIsMade: the size of a reply is computed before the reply is encoded. A small request
// that names one key many times could otherwise have a reply of any size encoded.
func TestLargeReplyIsRefusedBeforeItIsMade(t *testing.T) {
	small := func(c *replica.Config) { c.Limits.ReplyBytes = 1 << 20 }
	inBubble(t, small, func(t *testing.T, c *replicatest.Cluster) {
		c.Leader()
		follower := c.Followers()[0]
		require.Equal(t, protocol.OK, follower.Do("SET", "k", strings.Repeat("x", 1<<20)))
		c.Settle()
		for _, batch := range [][][]string{
			{mget("k", 300)},
			{{"SET", "other", "v"}, mget("k", 300)}, // its reply comes from the follower's own log
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			replies, err := follower.Execute(batch...)
			synctest.Wait() // the leader may still be working on its reply
			runtime.ReadMemStats(&after)
			if len(batch) == 1 {
				require.ErrorContains(t, err, "too large to be forwarded")
			} else {
				require.NoError(t, err)
				require.Len(t, replies[1].Elems, 300)
			}
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<20))
		}
	})
}

// TestSmallReadsPassLargeOnes: large reads through a follower take turns. They break no link, and do not delay small
// requests.
func TestSmallReadsPassLargeOnes(t *testing.T) {
	const clients, rate, reply = 6, 4 << 20, 6 << 20
	limits := func(c *replica.Config) { c.Limits.ReplyBytes = 8 << 20 }
	inBubble(t, limits, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		require.Equal(t, protocol.OK, leader.Do("SET", "big", strings.Repeat("x", 1<<20)))
		require.Equal(t, protocol.OK, follower.Do("SET", "small", "v"))
		_, downs := links(follower)
		c.Net.Limit(leader.Name, follower.Name, rate)
		var large []<-chan protocol.Value
		for range clients {
			large = append(large, later(follower, mget("big", reply>>20)...))
		}
		for range 100 {
			start := time.Now()
			require.Equal(t, protocol.Bulk("v"), follower.Do("GET", "small"))
			require.Equal(t, protocol.OK, follower.Do("SET", "small", "v"))
			require.Less(t, time.Since(start), replica.DefaultCommandTimeout/4)
			time.Sleep(20 * time.Millisecond)
		}
		answered := 0
		for _, l := range large {
			if v := <-l; v.IsError() {
				require.Equal(t, protocol.ErrNoLeader.Value(), v)
			} else {
				require.Len(t, v.Elems, reply>>20)
				answered++
			}
		}
		require.Equal(t, int(replica.DefaultCommandTimeout.Seconds()*rate)/reply, answered, "as many as the link carries")

		c.Net.Limit(leader.Name, follower.Name, 0)
		time.Sleep(time.Second)
		large = large[:0]
		for range clients {
			large = append(large, later(follower, mget("big", reply>>20)...))
		}
		for _, l := range large {
			require.Len(t, (<-l).Elems, reply>>20)
		}
		_, now := links(follower)
		require.Equal(t, downs, now, "no link was given up")
		require.NoError(t, follower.Replica().Healthy())
	})
}

// TestLinkThatTakesNothingIsGivenUp: the leader ends the link of a follower that takes no data, and drops the messages
// for it.
func TestLinkThatTakesNothingIsGivenUp(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		require.Equal(t, protocol.OK, follower.Do("SET", "big", strings.Repeat("x", 1<<20)))
		require.True(t, leader.Replica().Serves(follower.Replica()))
		c.Net.Limit(leader.Name, follower.Name, 1<<16)
		read := later(follower, "GET", "big")
		time.Sleep(time.Second)
		c.Net.Isolate(follower.Name)
		require.True(t, (<-read).IsError())
		time.Sleep(25 * time.Second)
		require.False(t, leader.Replica().Serves(follower.Replica()))
		c.Net.Rejoin(follower.Name)
		c.Net.Heal()
		time.Sleep(5 * time.Second)
		require.Len(t, follower.Do("GET", "big").Str, 1<<20)
	})
}

// TestLinkThatIsNotAnswered: a path passes small packets and loses large ones. The follower gives up its link, although
// status messages arrive. Batches that wait behind a large one, and were not sent, are surely not applied. The next
// link sends small segments.
func TestLinkThatIsNotAnswered(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		require.Equal(t, protocol.Integer(1), follower.Do("INCR", "n"))
		c.Net.LoseAbove(follower.Name, leader.Name, 600)
		begun := time.Now()
		large := later(follower, "SET", "large", strings.Repeat("x", 20<<10))
		time.Sleep(100 * time.Millisecond)
		behind := later(follower, "INCR", "n")
		time.Sleep(replica.DefaultCommandTimeout / 4)
		unsent := later(follower, "INCR", "n")
		require.Equal(t, protocol.ErrUncertain.Value(), <-large)
		require.Equal(t, protocol.ErrUncertain.Value(), <-behind)
		require.Equal(t, protocol.ErrNoLeader.Value(), <-unsent)
		for follower.Do("INCR", "n").IsError() {
			require.Less(t, time.Since(begun), 6*time.Second)
		}
		require.Equal(t, protocol.Integer(3), follower.Do("INCR", "n"), "what was not sent, or lost, was not applied")
		require.Equal(t, protocol.OK, follower.Do("SET", "large", strings.Repeat("x", 20<<10)))
		up, down := links(follower)
		require.Equal(t, 1, down)
		require.Equal(t, 2, up)
		require.Same(t, leader, c.Leader())
		time.Sleep(time.Hour)
		_, down = links(follower)
		require.Equal(t, 1, down, "a link that waits for nothing is not given up")
	})
}

// TestFollowerBehindABlackHole: the leader's large packets to a follower are lost. The follower gets its entries over
// another connection, also if it is far away, and more requests are in flight behind the lost one.
func TestFollowerBehindABlackHole(t *testing.T) {
	for _, roundTrip := range []time.Duration{0, 30 * time.Millisecond} {
		inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
			apart(c, roundTrip)
			leader, follower := c.Leader(), c.Followers()[0]
			c.Net.LoseAbove(leader.Name, follower.Name, 600)
			large := later(leader, "SET", "large", strings.Repeat("x", 20<<10))
			acquires(t, leader, 16, 5)
			require.Equal(t, protocol.OK, <-large)
			time.Sleep(5 * time.Second)
			require.Len(t, events[replica.FollowerStalled](leader), 1)
			time.Sleep(10 * time.Second)
			require.Len(t, events[replica.FollowerMoves](leader), 1)
			require.NoError(t, follower.Replica().Healthy())
			require.Equal(t, protocol.Integer(20<<10), follower.Do("STRLEN", "large"))
		})
	}
}

// TestLinkOfALeaderThatStandsStill: while the leader commits nothing, a follower keeps later batches, and sends them
// when earlier ones are answered. Its link is not given up, and reads do not wait.
func TestLinkOfALeaderThatStandsStill(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		clear := leader.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Hang: true})
		first := later(follower, "INCR", "n")
		time.Sleep(replica.DefaultCommandTimeout / 2)
		second := later(follower, "INCR", "n")
		require.Equal(t, protocol.Null, follower.Do("GET", "n"), "reads go on")
		time.Sleep(replica.DefaultCommandTimeout / 4)
		clear()
		require.Equal(t, protocol.Integer(1), <-first)
		require.Equal(t, protocol.Integer(2), <-second, "the second batch waits for the first reply")
		_, down := links(follower)
		require.Zero(t, down)
	})
}

// TestAllFollowersOfAnEntryAreAnswered: the leader answers the batches of all followers in an entry at once. No
// follower waits for its own log.
func TestAllFollowersOfAnEntryAreAnswered(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		defer slowDisks(c)()
		before := later(leader, "INCR", "n") // later batches wait for it, and share the next entry
		time.Sleep(time.Millisecond)
		last := leader.Replica().Status().LastLog
		first, second := later(c.Followers()[0], "INCR", "n"), later(c.Followers()[1], "INCR", "n")
		<-before
		start := time.Now()
		require.Equal(t, int64(2+3), (<-first).Num+(<-second).Num)
		require.Equal(t, 50*time.Millisecond, time.Since(start))
		require.Equal(t, last+1, leader.Replica().Status().LastLog)
	})
}

// named is a connection whose certificate names a node.
type named struct {
	net.Conn
	name string
}

func (c named) PeerName() string { return c.name }

// TestForwardsForItselfAlone: a leader accepts batches only from another member, and only from the node that the
// certificate names. Otherwise a node could have batches applied, or dropped, as another's.
func TestForwardsForItselfAlone(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, other := c.Leader(), c.Followers()[0]
		member := leader.Replica().IsMember
		require.True(t, member(named{name: other.ID}, other.ID))
		require.False(t, member(named{name: c.Followers()[1].ID}, other.ID))
		require.True(t, member(nil, other.ID), "a cluster without certificates")
		require.False(t, member(nil, leader.ID), "a node accepts no link from itself")
		require.False(t, member(nil, "n9-stranger"))
	})
}

// TestLargeBatchesAfterALeadership: a node loses the leadership while forwarded batches wait. When it leads again, it
// accepts large batches of its followers.
func TestLargeBatchesAfterALeadership(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Node("n1")
		lead(t, c, leader)
		slow(c)
		fast := slowDisks(c)
		for _, f := range c.Followers() {
			for i := range 300 {
				later(f, "SET", fmt.Sprint("s", i), strings.Repeat("x", 12_000))
			}
			for i := range 20 {
				later(f, "SET", fmt.Sprint("L", i), strings.Repeat("x", 20_000))
			}
		}
		time.Sleep(80 * time.Millisecond) // so that the next entry has no room for all admitted batches
		c.Net.Isolate(leader.Name)
		time.Sleep(5 * time.Second)
		c.Net.Heal()
		fast()
		time.Sleep(5 * time.Second)
		lead(t, c, leader)
		time.Sleep(time.Second)
		follower := c.Followers()[0]
		require.Equal(t, protocol.OK, follower.Do("SET", "small", "x"))
		for range 3 {
			require.Equal(t, protocol.OK, follower.Do("SET", "large", strings.Repeat("x", 20_000)))
		}
	})
}
