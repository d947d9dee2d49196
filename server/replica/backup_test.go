package replica_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

// keysOf counts the keys in a captured state.
func keysOf(t *testing.T, c replica.Captured) int {
	t.Helper()
	var b bytes.Buffer
	_, err := c.State.WriteTo(&b)
	require.NoError(t, err)
	m := fsm.New()
	require.NoError(t, m.Restore(&b))
	return m.Survey(0).Keys()
}

// TestCaptureHasWhatWasAcknowledged, on every node, at once.
func TestCaptureHasWhatWasAcknowledged(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		for i := range 20 {
			require.Equal(t, protocol.OK, c.Leader().Do("SET", fmt.Sprint("k", i), "v"))
			for _, n := range c.Nodes() {
				got, err := n.Replica().Capture(t.Context(), false)
				require.NoError(t, err)
				require.Equal(t, i+1, keysOf(t, got), "on %s", n.Name)
				require.Positive(t, got.Index)
			}
		}
	})
}

// TestCaptureOfANodeThatIsCutOff is refused, unless it may be stale.
func TestCaptureOfANodeThatIsCutOff(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		require.Equal(t, protocol.OK, c.Leader().Do("SET", "k", "v"))
		c.Settle()
		n := c.Followers()[0]
		c.Net.Isolate(n.Name)
		require.Equal(t, protocol.OK, c.Leader().Do("SET", "later", "v"))
		_, err := n.Replica().Capture(t.Context(), false)
		require.ErrorAs(t, err, new(*protocol.Error))
		got, err := n.Replica().Capture(t.Context(), true)
		require.NoError(t, err)
		require.Equal(t, 1, keysOf(t, got))
		c.Net.Heal()
		_, err = n.Replica().Capture(t.Context(), false)
		require.NoError(t, err)
	})
}
