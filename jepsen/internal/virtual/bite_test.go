package virtual

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
)

// set writes a key through a node, as a client of a side.
func set(t *testing.T, tgt target, side int, timeout time.Duration) wire.Reply {
	t.Helper()
	nc, err := tgt.service.Dial(t.Context(), side, tgt.places[side])
	require.NoError(t, err)
	conn := wire.New(nc, timeout)
	defer conn.Close()
	return conn.Do("SET", "k", "v")
}

// A leader whose disk hangs ends, while the others continue. That is a finding unless a fault excuses it.
func TestHangingDiskEndsANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tgt := target{service{newWorld(t, worldOptions{nodes: 3})}}
		require.NoError(t, tgt.Start(t.Context()))
		for _, excused := range []bool{true, false} {
			leader, known := tgt.Leader(t.Context())
			require.True(t, known)
			over := func() {}
			if excused {
				over = tgt.Excuse(leader)
			}
			_, err := tgt.Debug(t.Context(), leader, "DEBUG", "DISK", "HANG")
			require.NoError(t, err)
			for side, name := range tgt.places[:3] {
				if name != leader {
					set(t, tgt, side, 10*time.Second)
				}
			}
			time.Sleep(stallLimit + time.Second)
			require.False(t, tgt.Running(leader))
			over()
			if excused {
				require.Empty(t, tgt.Findings())
			} else {
				require.Len(t, tgt.Findings(), 1)
			}
			require.NoError(t, tgt.world.Start(leader))
			require.NoError(t, tgt.Serving(t.Context()))
		}
	})
}

// A paused node neither receives nor sends anything until it is resumed.
func TestPausedNodeAnswersLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tgt := target{service{newWorld(t, worldOptions{nodes: 3})}}
		require.NoError(t, tgt.Start(t.Context()))
		leader, known := tgt.Leader(t.Context())
		require.True(t, known)
		side := int(leader[1] - '1')
		nc, err := tgt.service.Dial(t.Context(), side, leader)
		require.NoError(t, err)
		conn := wire.New(nc, time.Minute)
		defer conn.Close()
		clock := tgt.cluster.Node(leader).Clock
		shown := clock.Monotonic()
		require.NoError(t, tgt.Pause(leader))
		go func() {
			time.Sleep(5 * time.Second)
			if clock.Monotonic() == shown {
				_ = tgt.Resume(leader)
			}
		}()
		began := time.Now()
		r := conn.Do("SET", "k", "v")
		require.Equal(t, history.OK, r.Outcome, r.Why)
		require.GreaterOrEqual(t, time.Since(began), 5*time.Second)
		require.Equal(t, history.OK, set(t, tgt, (side+1)%3, time.Second).Outcome)
	})
}
