package server

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/replica"
)

func TestBentClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSkewedClock(replica.SystemClock())
		start := time.Now()
		time.Sleep(time.Second)
		require.Equal(t, time.Second, c.Monotonic())
		require.Equal(t, start.Add(time.Second), c.Wall())

		c.setRate(1500)
		require.Equal(t, time.Second, c.Monotonic(), "a change of rate is no step")
		time.Sleep(time.Second)
		require.Equal(t, 2500*time.Millisecond, c.Monotonic())
		c.setRate(1000)
		time.Sleep(time.Second)
		require.Equal(t, 3500*time.Millisecond, c.Monotonic())

		c.setJump(-time.Hour, 0)
		require.Equal(t, start.Add(3*time.Second-time.Hour), c.Wall())
		require.Equal(t, 3500*time.Millisecond, c.Monotonic(), "a jump of the wall clock is not seen here")

		c.setJump(time.Minute, 100*time.Millisecond)
		require.Equal(t, start.Add(3*time.Second+time.Minute), c.Wall())
		time.Sleep(150 * time.Millisecond)
		require.Equal(t, start.Add(3150*time.Millisecond), c.Wall())
	})
}
