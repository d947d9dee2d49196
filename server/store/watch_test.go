package store

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAlarmOfACallThatEnded: an alarm that began to ring when the call came back is none.
func TestAlarmOfACallThatEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(Hooks{OnStall: func(op Op, elapsed time.Duration) { t.Errorf("%s stalled for %v", op, elapsed) }})
		w := g.begin(OpSet)
		time.Sleep(g.tickEvery() / 2)
		g.end(w)
		g.tick(w)
		time.Sleep(10 * DefaultDiskStallLimit)
		require.Zero(t, w.ticks.Load(), "it is not wound up again")
	})
}
