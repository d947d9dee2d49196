package server

import (
	"context"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/store"
)

// TestDebugWords: what DEBUG does not understand changes nothing.
func TestDebugWords(t *testing.T) {
	f := newFaults(DebugConfig{Debug: true})
	for words, known := range map[string]bool{
		"clock": true, "clock jump": true, "clock jump x": true, "clock jump 1 2": true, "clock strobe 1": true,
		"clock strobe 1000 0": true, "clock strobe 1000 -1": true, "clock rate 499": true, "clock rate 2001": true,
		"clock ok 1": true, "clock fast": true,
		"disk": true, "disk delay": true, "disk delay -1": true, "disk error 1": true, "disk slow": true,
		"": false, "sleep 1": false,
	} {
		reply, got := f.answer(strings.Fields(words))
		require.Equal(t, known, got, words)
		require.Equal(t, known, reply.IsError(), words)
	}
	require.Nil(t, newFaults(DebugConfig{}).handler(), "DEBUG is for --debug alone")
}

// TestDebugClock: every fault of the clock, and the end of it.
func TestDebugClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaults(DebugConfig{Debug: true})
		do := func(words string) {
			reply, known := f.answer(strings.Fields(words))
			require.True(t, known)
			require.Equal(t, protocol.OK, reply, words)
		}
		wall := func() time.Duration { return time.Until(f.clock().Wall()) }
		passes := func() time.Duration {
			before := f.clock().Monotonic()
			time.Sleep(time.Second)
			return f.clock().Monotonic() - before
		}
		do("CLOCK JUMP -5000")
		require.Equal(t, -5*time.Second, wall())
		for _, rate := range []string{"500", "2000"} {
			do("clock rate " + rate)
		}
		require.Equal(t, 2*time.Second, passes())
		for range 2 { // a strobe begins moved, whenever that is
			time.Sleep(100 * time.Millisecond)
			do("clock strobe 3000 100")
			var seen []time.Duration
			for range 4 {
				seen = append(seen, wall())
				time.Sleep(100 * time.Millisecond)
			}
			require.Equal(t, []time.Duration{3 * time.Second, 0, 3 * time.Second, 0}, seen)
		}
		do("clock ok")
		require.Zero(t, wall())
		require.Equal(t, time.Second, passes())
	})
}

// TestRewriteDial: the addresses in the table go elsewhere, all others where they should.
func TestRewriteDial(t *testing.T) {
	var dialled []string
	dial := rewriteDial("a:1=b:2, c:3=d:4,nonsense", func(_ context.Context, _, addr string) (net.Conn, error) {
		dialled = append(dialled, addr)
		return nil, nil
	})
	for _, addr := range []string{"a:1", "c:3", "e:5", "b:2"} {
		_, err := dial(t.Context(), "tcp", addr)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"b:2", "d:4", "e:5", "b:2"}, dialled)
}

// TestDebugDiskIsAbsolute: the last word counts, and what was said before is over.
func TestDebugDiskIsAbsolute(t *testing.T) {
	f := newFaults(DebugConfig{Debug: true})
	s, err := store.Open(store.Config{
		DataDir: t.TempDir(), Name: "n1", Hooks: store.Hooks{Faults: f.disk()},
	})
	require.NoError(t, err)
	defer s.Close()
	set := func() error { return s.Stable.SetUint64([]byte("k"), 1) }

	require.NoError(t, f.setDisk("error", nil))
	require.ErrorIs(t, set(), syscall.EIO)
	require.NoError(t, f.setDisk("enospc", nil))
	require.ErrorIs(t, set(), syscall.ENOSPC)
	require.NoError(t, f.setDisk("delay", []string{"0"}))
	require.NoError(t, set())
	require.NoError(t, f.setDisk("error", nil))
	require.NoError(t, f.setDisk("ok", nil))
	require.NoError(t, set())
}

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
