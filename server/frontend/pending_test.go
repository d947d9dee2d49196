package frontend

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// parked has the pending replies of ECHO, which parkEcho makes wait. left counts the connections that ended before the
// reply.
type parked struct {
	pending []*pending
	left    int
}

func (s *testServer) parkEcho() *parked {
	p := &parked{}
	for _, row := range s.rows {
		if row.Name == "echo" {
			row.handler = handler{barrier: true, run: func(c *conn, req *request) {
				pending := &pending{c: c, onLeave: func() { p.left++ }}
				p.pending = append(p.pending, pending)
				if string(req.args[1]) == "now" {
					pending.complete(protocol.Bulk("at once"))
				}
				c.park(row, pending)
			}}
		}
	}
	return p
}

// TestPark shows that a parked connection receives messages at once and its reply when complete is called. The commands
// behind it are then answered in order. Further calls of complete have no effect.
func TestPark(t *testing.T) {
	inBubble(t, Config{Timeouts: Timeouts{IdleTimeout: time.Second}}, func(t *testing.T, s *testServer) {
		p := s.parkEcho()
		c := s.dial()
		c.deliver(append(append(command("SET", "k", "v"), command("ECHO", "x")...), command("GET", "k")...))
		got, _ := c.take()
		require.Equal(t, "+OK\r\n", got)
		require.EqualValues(t, 1, s.metrics.Blocked.Load())
		c.send(command("DEL", "k"))
		s.postAll(message("m"))
		time.Sleep(time.Minute)
		got, closed := c.take()
		require.Equal(t, messageBytes("m"), got)
		require.False(t, closed, "an idle timeout does not hold while a command waits")
		p.pending[0].complete(protocol.Bulk("first"))
		p.pending[0].complete(protocol.Bulk("second"))
		settle()
		got, _ = c.take()
		require.Equal(t, "$5\r\nfirst\r\n$1\r\nv\r\n:1\r\n", got)
		require.Zero(t, s.metrics.Blocked.Load())

		c.deliver(append(command("ECHO", "now"), command("PING")...))
		got, _ = c.take()
		require.Equal(t, "$7\r\nat once\r\n+PONG\r\n", got)
		time.Sleep(2 * time.Second)
		_, closed = c.take()
		require.True(t, closed)
		require.Zero(t, p.left)
	})
}

// TestParkedConnectionEnds shows that onLeave is called once, whatever ends a parked connection.
func TestParkedConnectionEnds(t *testing.T) {
	for name, end := range map[string]func(*testServer, *testClient){
		"the client leaves":   func(_ *testServer, c *testClient) { c.nc.Close() },
		"CLIENT KILL":         func(s *testServer, _ *testClient) { s.clients()[0].nc.Close() },
		"the node shuts down": func(s *testServer, _ *testClient) { go s.stop() },
		"too much input": func(_ *testServer, c *testClient) {
			go c.nc.Write([]byte(strings.Repeat(string(command("PING")), 10_000)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{Limits: Limits{MaxQueryBytes: 64 << 10}}, func(t *testing.T, s *testServer) {
				p := s.parkEcho()
				c := s.dial()
				c.deliver(command("ECHO", "x"))
				require.Equal(t, 0, p.left)
				end(s, c)
				settle()
				require.Equal(t, 1, p.left)
				require.Zero(t, s.clientCount())
				require.Zero(t, s.metrics.Blocked.Load())
				p.pending[0].complete(protocol.OK)
			})
		})
	}
}

// TestParkHoldsNothing shows that a parked connection without further input has no buffers.
func TestParkHoldsNothing(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		s.parkEcho()
		c := s.dial()
		c.deliver(command("ECHO", "x"))
		require.Nil(t, s.clients()[0].w)
	})
}
