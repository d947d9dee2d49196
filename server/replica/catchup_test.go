package replica_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

// A follower that is behind by many large entries gets them over a slow link that breaks now and
// then: no deadline is for a request as a whole, and what arrived is not sent again.
func TestFollowerCatchesUpOverASlowLink(t *testing.T) {
	protocoltest.SkipShort(t, "hundreds of megabytes")
	const rate, entries, size = 512 << 10, 24, 1 << 20
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, away := c.Leader(), c.Followers()[0]
		c.Net.Isolate(away.Name)
		for i := range entries {
			require.Equal(t, protocol.OK, leader.Do("SET", fmt.Sprint("k", i), strings.Repeat("x", size)))
		}
		want := leader.Replica().Status().LastLog
		c.Net.Limit(leader.Name, away.Name, rate)
		c.Net.Rejoin(away.Name)
		seconds := 0
		for ; away.Replica().Status().LastLog < want; seconds++ {
			require.Less(t, seconds, 3*entries*size/rate)
			if seconds%20 == 19 { // a third of the bytes takes 16 s
				c.Net.Break(leader.Name, away.Name)
			}
			time.Sleep(time.Second)
		}
		require.Greater(t, seconds, entries*size/rate-1, "the link is slow")
		require.Equal(t, leader, c.Leader())
		c.Net.Limit(leader.Name, away.Name, 0)
		c.Settle()
	})
}

// Large entries that are in no node's memory any more reach a follower that was away, and each node's state when it
// starts.
func TestLargeEntriesFromTheDisk(t *testing.T) {
	protocoltest.SkipShort(t, "hundreds of megabytes")
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, away := c.Leader(), c.Followers()[0]
		away.Crash()
		for i := range 40 {
			require.Equal(t, protocol.OK, leader.Do("SET", fmt.Sprint("k", i), strings.Repeat("x", 300<<10+i)))
		}
		away.Start()
		c.Settle()
		require.Equal(t, 40, away.Replica().Stats().Keys[0])
		require.Empty(t, events[replica.Restored](away))
		for _, n := range c.Nodes() {
			n.Crash()
		}
		for _, n := range c.Nodes() {
			n.Start()
		}
		for i := range 40 {
			require.Equal(t, protocol.Integer(300<<10+int64(i)), c.Leader().Do("STRLEN", fmt.Sprint("k", i)))
		}
		c.Settle()
	})
}
