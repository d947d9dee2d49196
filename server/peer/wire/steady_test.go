package wire

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSteadyConnectionMayBeSlow shows that a write fails if the other side takes no bytes for a while, and not if it
// takes them slowly.
func TestSteadyConnectionMayBeSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer here.Close()
		conn := &Steady{Conn: here}
		done := make(chan error, 1)
		go func() {
			_, err := conn.Write(make([]byte, 1000))
			done <- err
		}()
		start := time.Now()
		for range 50 {
			time.Sleep(takeWithin - time.Second)
			_, err := there.Read(make([]byte, 20))
			require.NoError(t, err)
		}
		require.NoError(t, <-done)
		require.Greater(t, time.Since(start), 40*takeWithin)
		_, err := conn.Write(make([]byte, 1000))
		require.Error(t, err)
	})
}
