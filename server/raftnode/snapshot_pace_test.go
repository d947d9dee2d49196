package raftnode

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// slow is a writer that takes a fixed time for each write.
type slow time.Duration

func (s slow) Write(b []byte) (int, error) {
	time.Sleep(time.Duration(s))
	return len(b), nil
}

// TestPacedWriter: a snapshot takes four times as long while entries are applied, and only then. A pause is bounded,
// and ends when the node stops.
func TestPacedWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		idle := func() uint64 { return 7 }
		index := uint64(0)
		busy := func() uint64 { index++; return index }
		write := func(each time.Duration, applied func() uint64, stop chan struct{}) time.Duration {
			p := &pacedWriter{w: slow(each), applied: applied, stop: stop}
			start := time.Now()
			for range 11 {
				n, err := p.Write([]byte("ab"))
				require.NoError(t, err)
				require.Equal(t, 2, n)
			}
			return time.Since(start)
		}
		require.Equal(t, 11*time.Millisecond, write(time.Millisecond, idle, nil))
		require.Equal(t, (11+10*restFactor)*time.Millisecond, write(time.Millisecond, busy, nil))
		require.Equal(t, 11*time.Second+10*maxRest, write(time.Second, busy, nil))
		stop := make(chan struct{})
		close(stop)
		require.Equal(t, 11*time.Second, write(time.Second, busy, stop))
	})
}
