package frontend

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// TestStrangersMakeRoom: clients that have not authenticated cannot shut out others.
func TestStrangersMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{Users: asks("sesame"), Limits: Limits{MaxClients: 3}}, newCluster())
		dial := func(commands ...string) *testClient {
			c := s.dial()
			if len(commands) > 0 {
				c.send(command(commands...))
			}
			settle()
			return c
		}
		open := func(clients ...*testClient) (yes []bool) {
			for _, c := range clients {
				_, closed := c.take()
				yes = append(yes, !closed)
			}
			return yes
		}
		a, b, c := dial(), dial("PING"), dial()
		honest := dial("AUTH", "sesame")
		require.Equal(t, []bool{false, true, true, true}, open(a, b, c, honest), "the oldest makes room")
		d, e := dial(), dial()
		require.Equal(t, []bool{false, false, true, true, true}, open(b, c, d, e, honest), "who is known stays")
		d.send(command("AUTH", "sesame"))
		e.send(command("HELLO", "3", "AUTH", "default", "sesame"))
		settle()
		d.take()
		late := dial()
		got, closed := late.take()
		require.Equal(t, "-ERR max number of clients reached\r\n", got, "nobody is left to make room")
		require.True(t, closed)
		d.send(command("RESET"))
		settle()
		f := dial()
		require.Equal(t, []bool{false, true, true, true}, open(d, e, f, honest), "RESET makes a stranger again")
		require.Equal(t, uint64(5), s.metrics.Rejected.Load())
		for _, c := range []*testClient{e, f, honest} {
			c.nc.Close()
		}
		settle()
		require.Zero(t, s.clientCount())
		require.Zero(t, s.strangers.Len())
		require.Zero(t, s.memory.total.Load())
		s.stop()
	})
}

// TestFewAreToldThatThereIsNoRoom: connections that are refused, and take their time, do not add
// up.
func TestFewAreToldThatThereIsNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{Limits: Limits{MaxClients: 1}}, newCluster())
		s.dial()
		settle()
		var all []net.Conn
		for range 3 * Refusals {
			all = append(all, s.silent())
		}
		synctest.Wait()
		closed := 0
		for _, nc := range all {
			// A write to a pipe without a reader times out, unless the other end is closed.
			nc.SetWriteDeadline(time.Now().Add(time.Millisecond))
			if _, err := nc.Write([]byte("x")); errors.Is(err, io.ErrClosedPipe) {
				closed++
			}
		}
		require.Equal(t, 2*Refusals, closed)
		time.Sleep(time.Minute)
		require.Zero(t, s.refusals.Load())
		require.Equal(t, uint64(3*Refusals), s.metrics.Rejected.Load())
		s.stop()
	})
}

// TestRoomIsMadeForAFew: connections that were closed to make room count until their end, if there
// are many, because each still has its descriptor.
func TestRoomIsMadeForAFew(t *testing.T) {
	s := New(Config{Users: asks("sesame"), Limits: Limits{MaxClients: 1}}, newCluster())
	admit := func() (*conn, error) {
		_, theirs := net.Pipe()
		c := newConn(s, theirs, protocol.Redis())
		return c, s.register(c)
	}
	first, err := admit()
	require.NoError(t, err)
	last := first
	for range Refusals {
		next, err := admit()
		require.NoError(t, err)
		require.True(t, last.admission.dismissed, "each makes room once")
		last = next
	}
	_, err = admit()
	require.ErrorIs(t, err, errFull)
	s.unregister(first)
	_, err = admit()
	require.NoError(t, err)
}
