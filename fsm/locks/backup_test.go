package locks

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBackup: after a restore from a backup no request waits, and holds and sessions are gone, or have their full
// lease. What is given out then was not given out before.
func TestBackup(t *testing.T) {
	for seed := range uint64(20) {
		c := &chaos{r: rand.New(rand.NewPCG(seed, 11)), table: New()}
		c.table.Slice(seed%2 > 0)
		now := int64(1000)
		for range 80 {
			now += c.r.Int64N(20)
			c.table.Begin(now, plenty)
			c.table.Sweep()
			c.step()
		}
		c.table.TakeEffects()
		kept, dropped := c.table.Copy(), c.table
		kept.Begin(now, 0)
		before := kept.Stats()
		kept.Raise(1<<32, 0)
		kept.Refresh()
		checkAll(t, kept)
		after := kept.Stats()
		require.Empty(t, kept.Effects())
		require.Zero(t, after.Waiters)
		require.Equal(t, before.Sessions, after.Sessions)
		require.Equal(t, before.Holds, after.Holds)
		require.Equal(t, before.Fences+1<<32, after.Fences)
		kept.locks.Scan(func(l *lock) bool {
			kept.eachHold(l, func(h *hold) bool {
				require.True(t, h.deadline == never || h.deadline == now+h.lease())
				require.Zero(t, h.client())
				return true
			})
			return true
		})
		kept.sessions.Scan(func(s *session) bool {
			require.Equal(t, now+s.lease, kept.endOf(s))
			require.Zero(t, kept.clientOf(s.id))
			return true
		})
		again, err := loaded(saved(kept), kept.sliced)
		require.NoError(t, err)
		require.Equal(t, saved(kept), saved(again))

		dropped.Empty()
		dropped.Raise(1<<32, 0)
		checkAll(t, dropped)
		require.Zero(t, dropped.Bytes())
		require.Equal(t, now, dropped.now, "time does not go back")
		require.Equal(t, kept.sliced, dropped.sliced)
		require.Greater(t, dropped.mustAcquire(t, asks("a", "k")), before.Fences+1<<32)
	}
}
