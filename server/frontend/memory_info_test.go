package frontend

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestInfoMemory: INFO shows the limit and the used memory in Redis's fields.
func TestInfoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newCluster()
		s := start(t, Config{Memory: Memory{MaxMemoryBytes: 3 << 29}}, backend)
		c := s.dial()
		require.Equal(t, "0", infoFields(t, c)["used_memory"])
		c.send(command("SET", "k", "v"))
		settle()
		c.take()
		fields := infoFields(t, c)
		require.Greater(t, backend.Stats().UsedBytes, int64(128))
		require.Equal(t, fmt.Sprint(backend.Stats().UsedBytes), fields["used_memory"])
		require.Equal(t, "1610612736", fields["maxmemory"])
		require.Equal(t, "1.50G", fields["maxmemory_human"])
		require.Equal(t, "noeviction", fields["maxmemory_policy"])
		s.stop()
	})
}
