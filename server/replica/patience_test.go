package replica_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

// words returns the words of a formatted line.
func words(format string, args ...any) []string { return strings.Fields(fmt.Sprintf(format, args...)) }

// quietLog has a useful entry applied, after which requests that can wait are delayed. It returns the last index of the
// log.
func quietLog(leader *replicatest.Node) uint64 {
	leader.Do("INCR", "n")
	return leader.Replica().Status().LastLog
}

// TestWaitersComeWithTheNextEntry: a request that would only join a queue goes into the next useful entry, in the order
// of arrival, or is proposed after the delay. In an idle cluster it is proposed at once.
func TestWaitersComeWithTheNextEntry(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		lastLog := func() uint64 { return leader.Replica().Status().LastLog }
		acquire := func(i int, more string) []string {
			return words("lock-command %d %d 0 lock.acquire k o%d px 60000 %s", i, i, i, more)
		}
		release := func(i int) protocol.Value { return leader.Do(words("lock-command %d 0 0 lock.release k o%d", i, i)...) }
		require.Equal(t, protocol.Integer(1), leader.Do(acquire(1, "wait 0")...))
		time.Sleep(1500 * time.Millisecond) // the stamp of cluster time, each second, is a useful entry
		start := time.Now()
		require.Equal(t, protocol.Parked, leader.Do(acquire(2, "wait 0")...))
		require.Zero(t, time.Since(start))

		before := quietLog(leader)
		start = time.Now()
		var waiters []<-chan protocol.Value
		for i := 3; i <= 6; i++ {
			waiters = append(waiters, later(leader, acquire(i, "wait 0")...))
			time.Sleep(100 * time.Microsecond)
			require.Equal(t, before, lastLog())
		}
		require.Equal(t, protocol.Integer(0), release(1))
		for _, waiter := range waiters {
			require.Equal(t, protocol.Parked, <-waiter)
		}
		require.Equal(t, before+1, lastLog())
		require.Less(t, time.Since(start), replica.DefaultRefusalDelay)
		for i := 2; i <= 6; i++ {
			require.Equal(t, protocol.Integer(int64(i)), leader.Do("lock.check", "k", fmt.Sprint("o", i)),
				"the order of arrival")
			release(i)
		}

		// Without a useful entry, only the first request is delayed.
		require.Equal(t, protocol.KindInteger, leader.Do(acquire(1, "wait 0")...).Kind)
		time.Sleep(500 * time.Millisecond)
		quietLog(leader)
		for i, most := range []time.Duration{replica.DefaultRefusalDelay, 0} {
			start = time.Now()
			require.Equal(t, protocol.Parked, leader.Do(acquire(7+i, "wait 0")...))
			require.Equal(t, most, time.Since(start))
		}
	})
}

// TestHasteOfRequests: a request that is granted, or that others on its connection wait for, is proposed at once.
func TestHasteOfRequests(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		for _, n := range []*replicatest.Node{leader, follower} {
			for _, line := range []string{
				"lock-command 1 2 0 lock.acquire k you px 60000 wait 0 notify",
				"lock-command 1 3 0 lock.acquire k me px 60000 wait 0",
				"lock-command 1 3 0 lock.acquire free you px 1 wait 0",
				"lock-command 1 0 0 lock.release k me",
			} {
				require.Equal(t, protocol.KindInteger, leader.Do(words("lock-command 1 0 0 lock.acquire k me px 60000")...).Kind)
				quietLog(leader)
				start := time.Now()
				require.Equal(t, protocol.KindInteger, n.Do(strings.Fields(line)...).Kind, line)
				require.Zero(t, time.Since(start), line)
				leader.Do(words("lock-command 1 0 0 lock.cancel k you")...)
				leader.Do("DEL", "k")
			}
		}
	})
}

// TestBlockedPopsComeWithTheElement: a pop from an empty list goes into the entry of the next push, through any node. A
// pop from a list with an element is proposed at once.
func TestBlockedPopsComeWithTheElement(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		for i, n := range []*replicatest.Node{leader, c.Followers()[0]} {
			before := quietLog(leader)
			popped := later(n, words("wait-for-key %d blpop q 0", i)...)
			time.Sleep(100 * time.Microsecond)
			synctest.Wait()
			require.Equal(t, before, leader.Replica().Status().LastLog)
			require.Equal(t, protocol.Integer(1), leader.Do("RPUSH", "q", "x"))
			<-popped
			require.Equal(t, before+1, leader.Replica().Status().LastLog)
			leader.Do("DEL", "q")

			quietLog(leader)
			leader.Do("RPUSH", "q", "x")
			start := time.Now()
			require.Equal(t, protocol.KindArray, n.Do(words("wait-for-key %d blpop q 0", i)...).Kind)
			require.Zero(t, time.Since(start))
		}
	})
}
