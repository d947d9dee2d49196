package frontend

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
)

// TestMonitorThatDoesNotRead shows that a monitor that does not read is disconnected, and delays no other client.
func TestMonitorThatDoesNotRead(t *testing.T) {
	inBubble(t, Config{Limits: Limits{MaxOutputBytes: 1 << 20}}, func(t *testing.T, s *testServer) {
		m, err := s.ln.dial()
		require.NoError(t, err)
		defer m.Close()
		_, err = m.Write(command("MONITOR"))
		require.NoError(t, err)
		c := s.dial()
		for range 3 {
			for range 20 {
				c.deliver(command("SET", "k", strings.Repeat("x", 100_000)))
			}
			time.Sleep(time.Second)
		}
		got, _ := c.take()
		require.Equal(t, strings.Repeat("+OK\r\n", 60), got)
		require.Equal(t, 1, s.clientCount())
		require.Equal(t, uint64(1), s.metrics.CutOff.Load())
		require.False(t, s.cfg.Monitors.Watching())
		c.deliver(command("PING"))
		require.Less(t, s.memory.total.Load(), int64(1<<20), "the lines are forgotten")
	})
}

// TestMonitorsOfLongScripts shows that a script whose calls are too large to report ends the connections of monitors,
// and runs as usual.
func TestMonitorsOfLongScripts(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		m, c := s.dial(), s.dial()
		m.deliver(command("MONITOR"))
		c.send(command("EVAL", "for i = 1, ARGV[1] do redis.call('set', 'k', string.rep('x', 1000000)) end", "0", "15"))
		settle()
		got, closed := m.take()
		require.False(t, closed)
		require.Equal(t, 15, strings.Count(got, `[0 lua] "set" "k" "xxx`))
		c.deliver(command("EVAL", "for i = 1, ARGV[1] do redis.call('set', 'k', string.rep('x', 1000000)) end", "0", "17"))
		_, closed = m.take()
		require.True(t, closed)
		got, _ = c.take()
		require.Equal(t, "$-1\r\n$-1\r\n", got)
	})
}

// TestLastMonitorLeaves shows that the state machine reports the calls of scripts only while there is a monitor.
func TestLastMonitorLeaves(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		listens := func() bool {
			settle()
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.interest&event.InCalls != 0
		}
		a, b := s.dial(), s.dial()
		require.False(t, listens())
		a.send(command("MONITOR"))
		b.send(command("MONITOR"))
		require.True(t, listens())
		a.nc.Close()
		require.True(t, listens())
		b.send(command("RESET"))
		require.False(t, listens())
		b.send(command("MONITOR"))
		require.True(t, listens())
		b.nc.Close()
		require.False(t, listens())
	})
}

// TestMonitorsMicroseconds shows that a line of MONITOR has a time with six decimals, and escapes bytes that are not
// printable ASCII.
func TestMonitorsMicroseconds(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		m, c := s.dial(), s.dial()
		answer(m, "MONITOR")
		time.Sleep(70*time.Microsecond - time.Duration(time.Now().Nanosecond())%time.Second + time.Second)
		c.deliver(command("PING", "\x00é"))
		got, _ := m.take()
		require.Regexp(t, `^\+\d{9}\.000070 \[0 pipe\] "PING" "\\x00\\xc3\\xa9"\r\n$`, got)
	})
}

// BenchmarkNoMonitor measures what MONITOR costs a command on a node without a monitor.
func BenchmarkNoMonitor(b *testing.B) {
	s := New(Config{}, newCluster())
	c := &conn{srv: s}
	req := &request{row: s.execRow, args: [][]byte{[]byte("EXEC")}}
	for b.Loop() {
		c.show(req)
	}
}
