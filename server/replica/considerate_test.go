package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// slowly takes a second for a write.
type slowly struct{}

func (slowly) Write(b []byte) (int, error) {
	time.Sleep(time.Second)
	return len(b), nil
}

// A snapshot takes four times as long while commands are executed, and not when nothing else is done.
func TestSnapshotsAreConsiderate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		write := func(others func() uint64) time.Duration {
			c := &considerate{w: slowly{}, others: others}
			start := time.Now()
			for range 11 {
				n, err := c.Write([]byte("ab"))
				require.NoError(t, err)
				require.Equal(t, 2, n)
			}
			return time.Since(start)
		}
		busy := uint64(0)
		require.Equal(t, 11*time.Second, write(func() uint64 { return 7 }))
		require.Equal(t, 11*time.Second+10*restShare*time.Second, write(func() uint64 { busy++; return busy }))
	})
}
