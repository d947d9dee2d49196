package frontend

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/tracking"
)

// TestPrefixesAreBounded: the prefixes of BCAST count as the client's memory, more than the limit are
// refused, and nothing is left of them when the client leaves.
func TestPrefixesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{}, newCluster())
		c := s.dial()
		reply := func(words ...string) string {
			c.send(command(words...))
			settle()
			got, _ := c.take()
			return got
		}
		words := []string{"CLIENT", "TRACKING", "ON", "REDIRECT", "1", "BCAST"}
		for i := range tracking.MaxPrefixes {
			words = append(words, "PREFIX", fmt.Sprintf("%0100d", i))
		}
		require.Equal(t, "-ERR too many prefixes\r\n", reply(append(words, "PREFIX", "one more")...))
		before := s.memory.total.Load()
		require.Equal(t, "+OK\r\n", reply(words...))
		const held = tracking.MaxPrefixes * (100 + prefixBytes)
		require.GreaterOrEqual(t, s.memory.total.Load()-before, int64(held-memoryUnit))
		require.Equal(t, "-ERR too many prefixes\r\n", reply("CLIENT", "TRACKING", "ON", "REDIRECT", "1", "BCAST", "PREFIX",
			"one more"))
		c.nc.Close()
		settle()
		require.Zero(t, s.memory.total.Load())
		require.Zero(t, s.cfg.Tracking.Stats())
		s.stop()
	})
}
