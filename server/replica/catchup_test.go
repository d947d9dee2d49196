package replica_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

// A follower that is behind by many large entries gets them over a slow link that breaks now and
// then: no deadline is for a request as a whole, and what arrived is not sent again.
func TestFollowerCatchesUpOverASlowLink(t *testing.T) {
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
