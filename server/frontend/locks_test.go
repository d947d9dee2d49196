package frontend

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/stretchr/testify/require"
)

// unread is a client that reads only the replies that ask expects.
type unread struct {
	t  *testing.T
	nc net.Conn
}

// ask sends a command, and requires that the next bytes are the reply.
func (u unread) ask(reply string, words ...string) {
	_, err := u.nc.Write(command(words...))
	require.NoError(u.t, err)
	got := make([]byte, len(reply))
	_, err = io.ReadFull(u.nc, got)
	require.NoError(u.t, err)
	require.Equal(u.t, reply, string(got))
}

// TestUnreadGrantIsGivenBack shows that if a client disconnects before it has read the grant that it waited for, the
// grant is returned. A client that has read the grant keeps the lock.
func TestUnreadGrantIsGivenBack(t *testing.T) {
	for _, notify := range []string{"", "NOTIFY"} {
		for _, reads := range []bool{false, true} {
			inBubble(t, Config{}, func(t *testing.T, s *testServer) {
				nc, err := s.ln.dial()
				require.NoError(t, err)
				waiter, other := unread{t, nc}, s.dial()
				_, err = nc.Write(command("HELLO", "3"))
				require.NoError(t, err)
				_, err = io.ReadAtLeast(nc, make([]byte, 4096), 100)
				require.NoError(t, err)
				require.Equal(t, ":1\r\n", answer(other, "LOCK.ACQUIRE", "k", "holder", "PX", "60000"))
				line := []string{"LOCK.ACQUIRE", "k", "waiter", "PX", "60000", "WAIT", "0"}
				grant := ":2\r\n"
				if notify == "" {
					_, err = nc.Write(command(line...))
					require.NoError(t, err)
				} else {
					waiter.ask(":0\r\n", append(line, notify)...)
					grant = ">5\r\n$4\r\nlock\r\n$7\r\ngranted\r\n$1\r\nk\r\n$6\r\nwaiter\r\n:2\r\n"
				}
				synctest.Wait()
				require.Equal(t, ":0\r\n", answer(other, "LOCK.RELEASE", "k", "holder"))
				if reads {
					waiter.ask(grant+"+PONG\r\n", "PING")
				}
				require.Equal(t, ":2\r\n", answer(other, "LOCK.CHECK", "k", "waiter"))
				nc.Close()
				time.Sleep(time.Second)
				want := "$-1\r\n"
				if reads {
					want = ":2\r\n"
				}
				require.Equal(t, want, answer(other, "LOCK.CHECK", "k", "waiter"))
			})
		}
	}
}

// TestHalfReadGrantIsGivenBack shows that a grant of several locks counts as delivered with the last of its messages.
// If the client disconnects before that one is written, the grant is returned.
func TestHalfReadGrantIsGivenBack(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		nc, err := s.ln.dial()
		require.NoError(t, err)
		waiter, other := unread{t, nc}, s.dial()
		_, err = nc.Write(command("HELLO", "3"))
		require.NoError(t, err)
		_, err = io.ReadAtLeast(nc, make([]byte, 4096), 100)
		require.NoError(t, err)
		const begin, end, first = ">5\r\n$4\r\nlock\r\n$7\r\ngranted\r\n$65000\r\n", "\r\n$6\r\nwaiter\r\n:2\r\n", 4
		request, messages := []string{"LOCK.ACQUIREALL", strconv.Itoa(first + 1)}, ""
		for i := range first { // their messages fill one write
			key := strings.Repeat(string(rune('a'+i)), clientChunk/first-len(begin)-len(end))
			messages += strings.Replace(begin, "65000", strconv.Itoa(len(key)), 1) + key + end
			request = append(request, key)
		}
		require.Len(t, messages, clientChunk)
		request = append(request, "l", "waiter", "PX", "60000", "WAIT", "0", "NOTIFY")
		require.Equal(t, ":1\r\n", answer(other, "LOCK.ACQUIRE", "l", "holder", "PX", "60000"))
		waiter.ask(":0\r\n", request...)
		require.Equal(t, ":0\r\n", answer(other, "LOCK.RELEASE", "l", "holder"))
		got := make([]byte, clientChunk)
		_, err = io.ReadFull(nc, got)
		require.NoError(t, err)
		require.Equal(t, messages, string(got))
		settle()
		nc.Close()
		time.Sleep(time.Second)
		require.Equal(t, "$-1\r\n", answer(other, "LOCK.CHECK", "l", "waiter"))
	})
}

// TestUncertainWaitLeaves shows that if the outcome of a request that may wait is unknown, its wait ends. The request
// may have a place in a queue, but the client got UNCERTAIN and does not wait, so others must get what it would be
// granted.
func TestUncertainWaitLeaves(t *testing.T) {
	lock := []string{"LOCK.ACQUIRE", "k", "waiter", "PX", "600000", "WAIT", "0"}
	for name, c := range map[string]struct{ take, wait, give, probe []string }{
		"key": {nil, []string{"BLPOP", "k", "0"}, []string{"RPUSH", "k", "v"}, []string{"LLEN", "k"}},
		"lock": {[]string{"LOCK.ACQUIRE", "k", "holder", "PX", "600000"}, lock, []string{
			"LOCK.RELEASE", "k",
			"holder",
		}, []string{"LOCK.ACQUIRE", "k", "next", "PX", "600000"}},
		"lock, noticed": {
			[]string{"LOCK.ACQUIRE", "k", "holder", "PX", "600000"},
			append(lock, "NOTIFY"),
			[]string{"LOCK.RELEASE", "k", "holder"},
			[]string{"LOCK.ACQUIRE", "k", "next", "PX", "600000"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, s *testServer) {
				cl := s.cluster
				waiter, other := s.dial(), s.dial()
				if c.take != nil {
					require.Equal(t, ":1\r\n", answer(other, c.take...))
				}
				cl.set(func() { cl.uncertain = errors.New("the reply was lost") })
				require.Equal(t, "-"+protocol.ErrUncertain.Error()+"\r\n", answer(waiter, c.wait...))
				time.Sleep(time.Second)
				require.Equal(t, map[bool]string{true: ":1\r\n", false: ":0\r\n"}[name == "key"], answer(other, c.give...))
				require.Equal(t, "+PONG\r\n", answer(waiter, "PING"))
				require.Equal(t, map[bool]string{true: ":1\r\n", false: ":2\r\n"}[name == "key"], answer(other, c.probe...),
					"what was given is there for others")
			})
		})
	}
}

// TestUncertainSessionIsRenewed shows that a session is renewed if the outcome of SESSION.OPEN is unknown, since it may
// have been opened. It is not renewed if the command certainly failed.
func TestUncertainSessionIsRenewed(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		c := s.dial()
		for _, of := range []struct {
			failure error
			reply   string
			kept    int
		}{
			{protocol.ErrNoLeader, protocol.ErrNoLeader.Error(), 0},
			{errors.New("the reply was lost"), protocol.ErrUncertain.Error(), 1},
		} {
			cl.set(func() { cl.fail = of.failure })
			require.Equal(t, "-"+of.reply+"\r\n", answer(c, "SESSION.OPEN", "PX", "60000", "CONNECTION"))
			require.Equal(t, of.kept, s.backend.Clients().Renewer.Len())
		}
	})
}

// TestSlowSessionIsCutInTime shows that a connection whose session cannot be renewed is closed before the lease ends.
// The lease counts from the time at which the batch with the command was sent to the cluster, even if the reply is late
// or the command was queued for long.
func TestSlowSessionIsCutInTime(t *testing.T) {
	for name, queued := range map[string]bool{"alone": false, "in a transaction": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl, gate := newCluster(), make(chan struct{})
				s := start(t, Config{}, cl)
				c := s.dial()
				last, reply := []string{"SESSION.OPEN", "PX", "8000", "CONNECTION"}, ":1\r\n"
				if queued {
					require.Equal(t, "+OK\r\n", answer(c, "MULTI"))
					require.Equal(t, "+QUEUED\r\n", answer(c, last...))
					time.Sleep(time.Minute)
					last, reply = []string{"EXEC"}, "*1\r\n:1\r\n"
				}
				cl.set(func() { cl.gate = gate })
				require.Empty(t, answer(c, last...))
				time.Sleep(4 * time.Second)
				cl.set(func() { cl.gate, cl.fail = nil, protocol.ErrNoLeader }) // for later batches
				close(gate)
				settle()
				got, _ := c.take()
				require.Equal(t, reply, got)
				time.Sleep(2900 * time.Millisecond)
				require.Equal(t, "+PONG\r\n", answer(c, "PING"))
				require.Zero(t, s.backend.Clients().Renewer.Cuts())
				time.Sleep(200 * time.Millisecond)
				require.EqualValues(t, 1, s.backend.Clients().Renewer.Cuts())
			})
		})
	}
}

// TestHeartbeatStaysWithItsNode shows that the word HEARTBEAT is not written to the log, that another word in its place
// is refused, and that RESET ends its effect. A session with HEARTBEAT is renewed as long as its client sends anything
// within the lease, such as a part of a command.
func TestHeartbeatStaysWithItsNode(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go cl.clients.Run(ctx)
		c, other := s.dial(), s.dial()
		require.Contains(t, answer(c, "SESSION.OPEN", "PX", "4000", "HEARTBEAT"), "-ERR syntax error: SESSION.OPEN ")
		require.Contains(t, answer(c, "SESSION.OPEN", "PX", "4000", "CONNECTION", "BEAT", "HEARTBEAT"),
			"-ERR syntax error: SESSION.OPEN ")
		require.Equal(t, "$-1\r\n", answer(c, "SESSION.ATTACH", "1", "HEARTBEAT"))
		require.Equal(t, "-ERR wrong number of arguments for 'session.attach' command\r\n", answer(c, "SESSION.ATTACH", "1",
			"BEAT"))
		require.Equal(t, "-ERR wrong number of arguments for 'session.attach' command\r\n", answer(c, "SESSION.ATTACH", "1",
			"HEARTBEAT", "BEAT"))
		cl.take()
		require.Equal(t, ":1\r\n", answer(c, "SESSION.OPEN", "PX", "4000", "HEARTBEAT", "CONNECTION"))
		require.Equal(t, ":2\r\n", answer(other, "SESSION.OPEN", "EX", "4", "HEARTBEAT", "CONNECTION"))
		require.Equal(t, ":1\r\n", answer(other, "SESSION.ATTACH", "2", "HEARTBEAT"))
		batches := cl.take()
		require.NotEmpty(t, batches)
		for _, b := range batches {
			require.NotContains(t, string(b.Body), "HEARTBEAT")
		}
		answer(c, "RESET")
		require.Equal(t, ":3\r\n", answer(c, "SESSION.OPEN", "PX", "4000", "CONNECTION"))
		for _, part := range []string{"P", "I", "N"} { // a part of a command is input, too
			time.Sleep(3 * time.Second)
			other.deliver([]byte(part))
		}
		require.Equal(t, 2, cl.clients.Renewer.Len())
		time.Sleep(3900 * time.Millisecond)
		require.Equal(t, 2, cl.clients.Renewer.Len())
		time.Sleep(200 * time.Millisecond)
		require.Equal(t, 1, cl.clients.Renewer.Len())
		require.Equal(t, "+PONG\r\n", answer(c, "PING"))
	})
}

// TestLeasesOfSessions shows that leaseOf reads either unit, bounds a lease to an hour, and returns 0 for anything but
// a positive number.
func TestLeasesOfSessions(t *testing.T) {
	require.Equal(t, 1500*time.Millisecond, leaseOf([]byte("1500"), time.Millisecond))
	require.Equal(t, 15*time.Second, leaseOf([]byte("15"), time.Second))
	require.Equal(t, time.Hour, leaseOf([]byte("9223372036854775807"), time.Second))
	for _, none := range []string{"-1", "0", "x"} {
		require.Zero(t, leaseOf([]byte(none), time.Second), none)
	}
}

// answer sends a command, and returns what the client has received once the server is idle.
func answer(c *testClient, words ...string) string {
	c.deliver(command(words...))
	got, _ := c.take()
	return got
}

// TestNoticesAreBounded shows that the waits with NOTIFY of a connection are bounded, in number and in bytes. A wait
// that has ended does not count.
func TestNoticesAreBounded(t *testing.T) {
	for _, c := range []struct{ keyBytes, least, most int }{{60_000, 200, 300}, {1, maxNotices, maxNotices}} {
		inBubble(t, Config{}, func(t *testing.T, s *testServer) {
			holder, waiter := s.dial(), s.dial()
			key := strings.Repeat("k", c.keyBytes)
			require.Equal(t, ":1\r\n", answer(holder, "LOCK.ACQUIRE", key, "holder", "PX", "600000"))
			wait := func(owner int) string {
				return answer(waiter, "LOCK.ACQUIRE", key, strconv.Itoa(owner), "PX", "60000", "WAIT", "0", "NOTIFY")
			}
			waiting, got := 0, ":0\r\n"
			for ; got == ":0\r\n" && waiting <= c.most; waiting++ {
				got = wait(waiting)
			}
			waiting-- // the refused one
			require.Equal(t, "-ERR too many waits with NOTIFY on this connection\r\n", got)
			require.GreaterOrEqual(t, waiting, c.least)
			require.LessOrEqual(t, waiting, c.most)
			var held int
			for _, conn := range s.clients() {
				held = max(held, conn.footprint())
			}
			require.Greater(t, held, waiting*c.keyBytes)
			require.Equal(t, ":1\r\n", answer(waiter, "LOCK.CANCEL", key, "0"))
			require.Equal(t, ":0\r\n", wait(waiting))
			waiter.nc.Close()
			time.Sleep(time.Second)
			require.Zero(t, s.cluster.LockStats().Waiting)
			require.Zero(t, s.cluster.clients.Waiters.Len())
		})
	}
}

// TestBreaksAreLogged shows that a LOCK.BREAK that ends a hold is logged with its client and reason, also in a
// transaction.
func TestBreaksAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, lines := startLogged(t)
		c := s.dial()
		for _, line := range []string{
			"CLIENT SETNAME ops", "LOCK.ACQUIRE k me PX 60000", "LOCK.BREAK k FENCE 9 REASON none",
			"LOCK.BREAK k FENCE 1 DELAY 5 REASON stuck",
			"LOCK.ACQUIRE l me PX 60000", "MULTI", "SET x 1", "LOCK.BREAK l REASON again", "EXEC",
		} {
			require.NotContains(t, answer(c, strings.Fields(line)...), "-", line)
		}
		logged := lines.String()
		require.Equal(t, 2, strings.Count(logged, "lock broken by force"), logged)
		require.Contains(t, logged,
			"key=k owner=me fence=1 since=2000-01-01T00:00:00Z holder=n1/1 command=lock.break db=0 holds=1 reason=stuck "+
				"client=pipe id=1 name=ops")
		require.Contains(t, logged,
			"key=l owner=me fence=2 since=2000-01-01T00:00:00Z holder=n1/1 command=lock.break db=0 holds=1 reason=again "+
				"client=pipe id=1 name=ops")
	})
}
