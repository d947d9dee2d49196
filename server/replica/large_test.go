package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// There is room for two entries of large batches, small ones pass, and who waits does so in order and
// no longer than a command may take.
func TestLargeBatchesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLargeBatches(1600)
		batch := func(size int) *Batch { return &Batch{Body: make([]byte, size), Write: true} }
		enter := func(size int) func() {
			leave, err := l.enter(batch(size), time.Now().Add(time.Millisecond))
			require.NoError(t, err)
			return leave
		}
		first, second := enter(1600), enter(1600)
		enter(99)()

		_, err := l.enter(batch(100), time.Now().Add(time.Second))
		require.Equal(t, protocol.ErrBusy, err)
		require.Equal(t, protocol.OutcomeNone, protocol.ErrBusy.Outcome)

		entered := make(chan int, 2)
		for i, size := range []int{1 << 20, 100} { // the first is larger than all the room
			go func() {
				leave, err := l.enter(batch(size), time.Now().Add(time.Second))
				require.NoError(t, err)
				entered <- i
				leave()
			}()
			synctest.Wait()
		}
		first()
		synctest.Wait()
		require.Empty(t, entered, "the small one does not pass the one before it")
		second()
		require.Equal(t, 0, <-entered)
		require.Equal(t, 1, <-entered)
	})
}
