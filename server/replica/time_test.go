package replica_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

func lastLog(c *replicatest.Cluster) uint64 { return c.Leader().Replica().Status().LastLog }

// TestIdleClusterWritesNothing: while no key has a deadline, an idle cluster adds no entry to its log.
func TestIdleClusterWritesNothing(t *testing.T) {
	protocoltest.SkipShort(t, "a day of virtual time")
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		require.Equal(t, protocol.OK, c.Leader().Do("SET", "k", "v"))
		require.Equal(t, protocol.OK, c.Leader().Do("SET", "lease", "v", "PX", "100"))
		time.Sleep(time.Second)
		before := lastLog(c)
		quiet := time.Hour
		if protocoltest.Raced {
			quiet = 5 * time.Minute // with the race detector, an hour takes a minute
		}
		time.Sleep(quiet)
		require.Equal(t, before, lastLog(c))
		require.Len(t, events[replica.LeaderChanged](c.Node("n1")), 1, "quiet is no reason for an election")
	})
}

// TestIdleClusterIsQuiet: an idle leader sends heartbeats, and few other requests.
func TestIdleClusterIsQuiet(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		require.Equal(t, protocol.OK, c.Leader().Do("SET", "k", "v"))
		c.Settle()
		before := c.Net.Writes()
		time.Sleep(time.Minute)
		// Heartbeats come every 40 to 80 ms, and requests with the commit index every 100 to 200 ms. Each has an
		// answer.
		require.InDelta(t, 2*2*(60/0.06+60/0.15), c.Net.Writes()-before, 600)
	})
}

// TestHeartbeatStamps: while some key has a deadline, cluster time is committed about once a second.
func TestHeartbeatStamps(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		require.Equal(t, protocol.OK, c.Leader().Do("SET", "lease", "v", "PX", "3600000"))
		before := lastLog(c)
		time.Sleep(10 * time.Minute)
		require.InDelta(t, 600, lastLog(c)-before, 120)
	})
}

// TestDistantDeadlineIsNotDue: a deadline that is too far away for a time.Duration has not passed.
func TestDistantDeadlineIsNotDue(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		for _, ttlMillis := range []string{"9223372036855", "13835058055283", "9000000000000000"} {
			require.Equal(t, protocol.OK, c.Leader().Do("SET", "lease", "v", "PX", ttlMillis))
			before := lastLog(c)
			time.Sleep(time.Minute)
			require.InDelta(t, 60, lastLog(c)-before, 12, ttlMillis)
		}
	})
}

// TestLeasesEnd: a lease ends at its deadline, even if no request reads its key.
func TestLeasesEnd(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		for i := range 50 {
			require.Equal(t, protocol.OK, leader.Do("SET", "lease"+strconv.Itoa(i), "v", "PX", strconv.Itoa(100*(i+1))))
		}
		time.Sleep(2525 * time.Millisecond)
		require.InDelta(t, 25, keys(leader), 1)
		time.Sleep(2600 * time.Millisecond)
		require.Zero(t, keys(leader))
		c.Settle()
	})
}

func keys(n *replicatest.Node) int { return n.Replica().Stats().Keys[0] }

// TestReadsAndWritesAgreeOnTheEnd: reads and writes agree, to the millisecond, on whether a lease has ended.
func TestReadsAndWritesAgreeOnTheEnd(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		for _, n := range []*replicatest.Node{c.Leader(), c.Followers()[0]} {
			require.Equal(t, protocol.OK, n.Do("SET", "lease", "a", "PX", "50"))
			for n.Do("GET", "lease").Kind != protocol.KindNull {
				require.Equal(t, protocol.Bulk("a"), n.Do("SET", "lease", "b", "NX", "GET"))
				time.Sleep(time.Millisecond)
			}
			require.Equal(t, protocol.OK, n.Do("SET", "lease", "b", "NX"))
			require.Equal(t, protocol.Integer(1), n.Do("DEL", "lease"))
		}
	})
}

// TestLeasesNeverEndEarly: failovers, jumps of wall clocks and a leader whose clock is frozen can lengthen a lease, and
// never shorten it.
func TestLeasesNeverEndEarly(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		const ttl = 20 * time.Second
		begin := time.Now()
		require.Equal(t, protocol.OK, c.Leader().Do("SET", "lease", "v", "PX", strconv.FormatInt(ttl.Milliseconds(), 10)))
		for i := 0; ; i++ {
			reply := c.Leader().Do("GET", "lease")
			passed := time.Since(begin)
			if reply.IsNull() {
				require.GreaterOrEqual(t, passed, ttl)
				require.Less(t, passed, 5*ttl, "and it does end")
				break
			}
			old := c.Leader()
			switch i % 4 {
			case 0:
				old.Crash()
				c.Leader()
				old.Start()
			case 1:
				old.Clock.Jump(time.Duration(i-8) * time.Hour)
			case 2:
				old.Clock.Freeze()
				time.Sleep(500 * time.Millisecond)
				old.Clock.Thaw()
			case 3:
				require.NoError(t, old.Replica().TransferLeadership(t.Context(), ""))
			}
			time.Sleep(500 * time.Millisecond)
		}
	})
}

// TestFrozenClockEndsNothing: a leader's clock stands still for a minute, and the leader is not deposed. When the clock
// runs again, the leader does not end all leases.
func TestFrozenClockEndsNothing(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		require.Equal(t, protocol.OK, leader.Do("SET", "lease", "v", "PX", "10000"))
		leader.Clock.Freeze()
		time.Sleep(time.Minute)
		leader.Clock.Thaw()
		ttl := leader.Do("PTTL", "lease").Num
		require.Greater(t, ttl, int64(9_000))
	})
}

// TestWallClock: while the leader's wall clock is right, PEXPIRETIME returns exactly the time that was set. A jump of
// the wall clock changes the reported times, and never the remaining time.
func TestWallClock(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		at := strconv.FormatInt(time.Now().Add(time.Minute).UnixMilli(), 10)
		require.Equal(t, protocol.OK, leader.Do("SET", "lease", "v", "PXAT", at))
		for range 20 {
			require.Equal(t, at, strconv.FormatInt(leader.Do("PEXPIRETIME", "lease").Num, 10))
			time.Sleep(777 * time.Millisecond)
		}
		before := leader.Do("PTTL", "lease").Num
		leader.Clock.Jump(-time.Hour)
		time.Sleep(2 * time.Second)
		after := leader.Do("PTTL", "lease").Num
		require.InDelta(t, before-2000, after, 2)
		seconds, err := strconv.ParseInt(leader.Do("TIME").Elems[0].Str, 10, 64)
		require.NoError(t, err)
		require.InDelta(t, time.Now().Add(-time.Hour).Unix(), seconds, 1)
	})
}
