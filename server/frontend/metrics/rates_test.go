package metrics

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRates: INFO tells what there was per second in the latest 1.6 seconds, whenever it is asked.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRegistry(newNode())
		shown := func() string {
			s.NoteRates(time.Now()) // as INFO does
			r := s.perSecond(time.Now())
			return fmt.Sprintf("%.0f %.0f %.0f", r.commands, r.in, r.out)
		}
		// 34 bytes a command, and 5 the reply.
		set := func() {
			s.BytesIn.Add(34)
			s.NoteRates(time.Now())
			s.BytesOut.Add(5)
			s.Commands.Add(1)
		}
		steady := func(d time.Duration) {
			for range d / (10 * time.Millisecond) {
				set()
				time.Sleep(10 * time.Millisecond)
			}
		}
		require.Equal(t, "0 0 0", shown())
		time.Sleep(5 * time.Second)
		require.Equal(t, "0 0 0", shown())

		steady(3 * time.Second)
		require.Equal(t, "100 3379 500", shown())
		time.Sleep(800 * time.Millisecond)
		require.Equal(t, "50 1679 250", shown())
		time.Sleep(10 * time.Second)
		require.Equal(t, "0 0 0", shown())

		// What came at once, long ago, is not of late, even if nothing was counted since.
		burst := func() {
			for range 1000 {
				set()
			}
		}
		burst()
		time.Sleep(time.Second)
		require.Equal(t, "625 21250 3125", shown())
		time.Sleep(10 * time.Second)
		burst()
		time.Sleep(10 * time.Second)
		require.Equal(t, "0 0 0", shown())

		steady(3 * time.Second)
		s.Reset()
		require.Equal(t, "0 0 0", shown())
		steady(800 * time.Millisecond)
		require.Equal(t, "50 1700 250", shown())
		steady(2 * time.Second)
		require.Equal(t, "100 3379 500", shown())
	})
}
