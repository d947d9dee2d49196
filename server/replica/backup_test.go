package replica_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/store"
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

// TestCaptureHasWhatWasAcknowledged: a capture on any node has every write that was acknowledged before it.
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

// TestCaptureOnASlowFollower: a write is acknowledged before a slow follower has it. A capture on the follower waits
// for the follower's own log, and fails if that takes too long.
func TestCaptureOnASlowFollower(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		for i, delay := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond} {
			fast := follower.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Delay: delay})
			require.Equal(t, protocol.OK, leader.Do("SET", fmt.Sprint("k", i), "v"))
			got, err := follower.Replica().Capture(t.Context(), false)
			require.NoError(t, err, "appends take %v", delay)
			require.Equal(t, i+1, keysOf(t, got), "appends take %v", delay)
			fast()
		}
		c.Settle()
		undo := follower.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Hang: true})
		require.Equal(t, protocol.OK, leader.Do("SET", "last", "v"))
		_, err := follower.Replica().Capture(t.Context(), false)
		require.ErrorContains(t, err, "lags")
		undo()
		c.Settle()
		got, err := follower.Replica().Capture(t.Context(), false)
		require.NoError(t, err)
		require.Equal(t, 4, keysOf(t, got))
	})
}

// TestCaptureOfANodeThatIsCutOff: a capture on a node that is cut off fails, unless it may be stale.
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
