package frontend

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/stretchr/testify/require"
)

// silent connects a client that reads nothing unless the test does.
func (s *testServer) silent() net.Conn {
	nc, err := s.ln.dial()
	require.NoError(s.t, err)
	s.t.Cleanup(func() { nc.Close() })
	return nc
}

// TestSlowReader shows that a client that does not read its replies is disconnected: after 30 seconds, or after one
// second if more than MaxOutputBytes are unread. Other clients are served meanwhile.
func TestSlowReader(t *testing.T) {
	for _, test := range []struct {
		name    string
		replies int // of 1000 bytes each
		at      time.Duration
	}{
		{"below the output limit", 10, 30 * time.Second},
		{"above it", 1000, time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, Config{Limits: Limits{MaxOutputBytes: 500_000}}, func(t *testing.T, s *testServer) {
				good := s.dial()
				answer(good, "SET", "k", strings.Repeat("x", 1000))
				began := time.Now()
				bad := s.silent()
				go bad.Write([]byte(strings.Repeat(string(command("GET", "k")), test.replies)))
				for s.metrics.CutOff.Load() == 0 {
					require.Less(t, time.Since(began), time.Minute)
					good.send(command("PING"))
					synctest.Wait()
					got, _ := good.take()
					require.Equal(t, "+PONG\r\n", got)
					time.Sleep(100 * time.Millisecond)
				}
				took := time.Since(began)
				require.GreaterOrEqual(t, took, test.at)
				// The client is disconnected at the end of a write deadline, which may be a little later.
				require.Less(t, took, test.at+3*time.Second)
				settle()
				require.Equal(t, 1, s.clientCount())
			})
		})
	}
}

// TestSlowButSteadyReader shows that a client that reads slowly but steadily is not disconnected, although more than
// MaxOutputBytes are unread.
func TestSlowButSteadyReader(t *testing.T) {
	inBubble(t, Config{Limits: Limits{MaxOutputBytes: 500_000}}, func(t *testing.T, s *testServer) {
		c := s.dial()
		c.deliver(command("SET", "k", strings.Repeat("x", 1000)))
		slow := s.silent()
		go slow.Write([]byte(strings.Repeat(string(command("GET", "k")), 3000)))
		buf := make([]byte, 50_000)
		for total := 0; total < 3000*(1000+len("$1000\r\n\r\n")); {
			n, err := slow.Read(buf)
			require.NoError(t, err)
			total += n
			time.Sleep(900 * time.Millisecond)
		}
		require.Zero(t, s.metrics.CutOff.Load())
	})
}

// TestDrain shows that at shutdown running commands are answered, clients that are idle or have sent half a command are
// disconnected at once, and new clients are refused. WAIT ends at once.
func TestDrain(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		idle, busy, waiting, half := s.dial(), s.dial(), s.dial(), s.dial()
		idle.send(command("PING"))
		waiting.send(command("WAIT", "9", "0"))
		half.deliver(command("SET", "k", "v")[:9])
		idle.take()
		gate := make(chan struct{})
		cl.set(func() { cl.gate = gate })
		busy.deliver(append(command("SET", "k", "v"), command("GET", "k")...))

		stopped := make(chan struct{})
		go func() { s.stop(); close(stopped) }()
		synctest.Wait()
		for _, c := range []*testClient{idle, half} {
			_, closed := c.take()
			require.True(t, closed)
		}
		got, closed := waiting.take()
		require.Equal(t, ":2\r\n", got)
		require.True(t, closed)
		_, closed = busy.take()
		require.False(t, closed)
		_, err := s.ln.dial()
		require.ErrorIs(t, err, net.ErrClosed)

		time.Sleep(5 * time.Second)
		close(gate)
		<-stopped
		synctest.Wait()
		got, closed = busy.take()
		require.Equal(t, "+OK\r\n$1\r\nv\r\n", got)
		require.True(t, closed)
	})
}

// TestDrainEndsClientsThatHaveMore shows that at shutdown the running batch of a pipeline is answered, and the commands
// after it do not run.
func TestDrainEndsClientsThatHaveMore(t *testing.T) {
	inBubble(t, Config{Limits: Limits{MaxPipeline: 2}}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		gate := make(chan struct{})
		cl.set(func() { cl.gate = gate })
		c := s.dial()
		c.deliver(bytes.Repeat(command("INCR", "n"), 10))
		go s.stop()
		synctest.Wait()
		close(gate)
		settle()
		got, closed := c.take()
		require.Equal(t, ":1\r\n:2\r\n", got)
		require.True(t, closed)
	})
}

// TestRevokedRightsRunNothing shows that commands that a user has sent do not run after the user has lost rights, nor
// does a queued transaction. The connection is closed.
func TestRevokedRightsRunNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		users := &fileUsers{file: "testdata/users.acl"}
		require.NoError(t, users.Load(""))
		cl := newCluster()
		s := start(t, Config{Users: users}, cl)
		bob, alice := s.dial(), s.dial()
		require.Equal(t, "+OK\r\n", answer(bob, "auth", "bob", "p"))
		gate := make(chan struct{})
		cl.set(func() { cl.gate = gate })
		var line []byte
		for _, words := range []string{
			"MULTI", "SET w:queued v", "SET w:taken v", "CONFIG GET maxclients", "EXEC",
			"SET w:later v",
		} {
			line = append(line, command(strings.Fields(words)...)...)
		}
		bob.deliver(append(append(command("SET", "w:first", "v"), command("CONFIG", "GET", "maxclients")...), line...))
		users.file = "testdata/users-later.acl"
		require.NoError(t, users.Load(""))
		cl.set(func() { cl.gate = nil })
		close(gate)
		settle()
		_, closed := bob.take()
		require.True(t, closed)
		require.Equal(t, "+OK\r\n", answer(alice, "auth", "root", "p"))
		require.Equal(t, ":1\r\n", answer(alice, "exists", "w:first", "w:queued", "w:later"))
	})
}

// TestLoadRepliesBeforeItCloses shows that ACL LOAD replies to its client even if the file revokes rights of the
// client's user, as in Redis. Then all connections of the user are closed, and commands after ACL LOAD do not run.
func TestLoadRepliesBeforeItCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		users := &fileUsers{file: "testdata/users.acl"}
		require.NoError(t, users.Load(""))
		s := start(t, Config{Users: users}, newCluster())
		loads, other := s.dial(), s.dial()
		for _, c := range []*testClient{loads, other} {
			require.Equal(t, "+OK\r\n", answer(c, "auth", "root", "p"))
		}
		users.file = filepath.Join(t.TempDir(), "users.acl")
		rules := "user default on nopass ~* &* +@all\nuser root on >p ~* &* +@all -flushall\n"
		require.NoError(t, os.WriteFile(users.file, []byte(rules), 0o600))
		loads.deliver(append(command("ACL", "LOAD"), command("SET", "later", "v")...))
		got, closed := loads.take()
		require.Equal(t, "+OK\r\n", got)
		require.True(t, closed)
		_, closed = other.take()
		require.True(t, closed)
		require.Equal(t, ":0\r\n", answer(s.dial(), "exists", "later"))
	})
}

// TestDrainIsBounded shows that connections whose commands run longer than ShutdownTimeout are closed, and that Serve
// returns once the backend has returned.
func TestDrainIsBounded(t *testing.T) {
	inBubble(t, Config{Timeouts: Timeouts{ShutdownTimeout: 3 * time.Second}}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		busy := s.dial()
		gate := make(chan struct{})
		cl.set(func() { cl.gate = gate })
		busy.deliver(command("SET", "k", "v"))
		began := time.Now()
		go s.stop()
		time.Sleep(3*time.Second - time.Millisecond)
		synctest.Wait()
		_, closed := busy.take()
		require.False(t, closed)
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		_, closed = busy.take()
		require.True(t, closed)
		close(gate)
		s.stop()
		require.Less(t, time.Since(began), 4*time.Second)
	})
}

// TestNoLeaks shows that nothing of a connection is left after the client has disconnected, whatever command it was
// running.
func TestNoLeaks(t *testing.T) {
	inBubble(t, Config{Options: Options{Debug: true}}, func(t *testing.T, s *testServer) {
		for _, line := range []string{
			"PING", "MULTI", "WATCH k", "WAIT 9 0", "DEBUG SLEEP 1000", "SET k v", "QUIT",
			"CLIENT REPLY OFF",
		} {
			c := s.dial()
			c.deliver(command(strings.Fields(line)...))
			c.nc.Close()
			settle()
			require.Zero(t, s.clientCount(), line)
		}
		// synctest fails the test if a goroutine is left at the end.
	})
}

// brokenListener is a listener whose first calls of Accept fail, as if there were no free file descriptors.
type brokenListener struct {
	*memListener
	failures int
}

func (l *brokenListener) Accept() (net.Conn, error) {
	if l.failures > 0 {
		l.failures--
		return nil, &net.OpError{Op: "accept", Err: fmt.Errorf("too many open files")}
	}
	return l.memListener.Accept()
}

func TestAcceptGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newMemListener()
		s := startOn(t, Config{}, newCluster(), &brokenListener{ln, 20})
		s.ln = ln
		began := time.Now()
		c := s.dial()
		require.Greater(t, time.Since(began), 5*time.Second)
		require.Equal(t, "+PONG\r\n", answer(c, "PING"))
	})
}

// TestServeEndsWithItsListener shows that Serve returns an error if its listener is closed by others.
func TestServeEndsWithItsListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{}, newCluster())
		ln := newMemListener()
		ln.Close()
		require.ErrorIs(t, s.Serve(t.Context(), ln), net.ErrClosed)
	})
}

// TestPanicEndsOneConnection shows that a panic in a command is logged, and ends only the connection of its client.
func TestPanicEndsOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged strings.Builder
		s := New(Config{Logger: slog.New(slog.NewTextHandler(&logged, nil))}, newCluster())
		for _, row := range s.rows {
			if row.Name == "echo" {
				row.handler.reply = func(*conn, [][]byte) protocol.Value { panic("boom") }
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ln := newMemListener()
		done := make(chan error)
		go func() { done <- s.Serve(ctx, ln) }()
		ts := &testServer{Server: s, t: t, ln: ln}
		good, bad := ts.dial(), ts.dial()
		bad.send(command("ECHO", "x"))
		good.deliver(command("PING"))
		_, closed := bad.take()
		require.True(t, closed)
		got, closed := good.take()
		require.Equal(t, "+PONG\r\n", got)
		require.False(t, closed)
		cancel()
		require.NoError(t, <-done)
		require.Contains(t, logged.String(), "boom")
	})
}

// TestLastReplyArrives shows that over TCP a client that is still sending receives the reply that ends the connection.
func TestLastReplyArrives(t *testing.T) {
	addr := startTCP(t, Config{})
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer nc.Close()
	_, err = nc.Write([]byte("*1\r\n$x\r\n" + strings.Repeat("more ", 10000)))
	require.NoError(t, err)
	got, err := io.ReadAll(nc)
	require.NoError(t, err)
	require.Equal(t, "-ERR Protocol error: invalid bulk length\r\n", string(got))
}

// TestPipelineLargerThanAllBuffers shows that a client that sends its whole pipeline before it reads is served, even if
// there is no buffer between the two sides.
func TestPipelineLargerThanAllBuffers(t *testing.T) {
	own, pool := certificate(t)
	for _, encrypted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := Config{Limits: Limits{MaxOutputBytes: 1 << 20}}
			if encrypted {
				cfg.TLS = &tls.Config{Certificates: []tls.Certificate{own}}
			}
			s := start(t, cfg, newCluster())
			nc := s.silent()
			if encrypted {
				nc = tls.Client(nc, &tls.Config{RootCAs: pool, ServerName: "localhost"})
			}
			const commands = 25_000
			began := time.Now()
			_, err := nc.Write(append(command("SET", "k", strings.Repeat("x", 100)), bytes.Repeat(command("GET", "k"),
				commands)...))
			require.NoError(t, err)
			got := make([]byte, len("+OK\r\n")+commands*len("$100\r\n\r\n")+commands*100)
			_, err = io.ReadFull(nc, got)
			require.NoError(t, err)
			require.Less(t, time.Since(began), time.Second)
			require.Zero(t, s.metrics.CutOff.Load())
		})
	}
}

// TestLastReplyIsTheEnd shows that before the last reply of a connection is written, the client is removed from all
// answers to others: from the list of clients, subscriptions, sessions and tracking. The client does not read here, so
// the last reply stays unwritten while the test asks.
func TestLastReplyIsTheEnd(t *testing.T) {
	quit, subscribe := command("QUIT"), [][]byte{command("SUBSCRIBE", "ch")}
	for _, c := range []struct {
		name, ask, want string
		before          [][]byte
		end             []byte
	}{
		{"CLIENT LIST", "CLIENT UNBLOCK 1", ":0\r\n", nil, quit},
		{"subscription", "PUBSUB NUMSUB ch", "*2\r\n$2\r\nch\r\n:0\r\n", subscribe, quit},
		{"pattern", "PUBSUB NUMPAT", ":0\r\n", [][]byte{command("PSUBSCRIBE", "c*")}, quit},
		{
			"session", "LOCK.ACQUIRE l other PX 1000", ":2\r\n", [][]byte{
				command("SESSION.OPEN", "PX", "9000", "CONNECTION"), command("LOCK.ACQUIRE", "l", "me", "SESSION", "1"),
			}, quit,
		},
		{"wrong input", "PUBSUB NUMSUB ch", "*2\r\n$2\r\nch\r\n:0\r\n", subscribe, []byte("*x\r\n")},
		{"killed by itself", "PUBSUB NUMSUB ch", "*2\r\n$2\r\nch\r\n:0\r\n", [][]byte{
			command("HELLO", "3"), command("SUBSCRIBE", "ch"),
		}, command("CLIENT", "KILL", "SKIPME", "NO", "ID", "1")},
		{"tracking", "CLIENT GETREDIR", ":1\r\n", [][]byte{command("CLIENT", "TRACKING", "ON", "BCAST")}, quit},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, s *testServer) {
				leaver, other := s.silent(), s.dial()
				buf := make([]byte, 4096)
				for _, b := range c.before {
					leaver.Write(b)
					synctest.Wait()
					_, err := leaver.Read(buf)
					require.NoError(t, err)
				}
				other.send(command("HELLO", "3"))
				other.send(command("CLIENT", "TRACKING", "ON", "REDIRECT", "1"))
				answer(other, "GET", "k")
				leaver.Write(c.end)
				synctest.Wait() // the client has not read the reply
				got := answer(other, strings.Fields(c.ask)...)
				require.True(t, strings.HasPrefix(got, c.want), "%q", got)
				require.Contains(t, answer(other, "SET", "k", "1"), "tracking-redir-broken")
				require.Len(t, s.clients(), 1)
				require.Equal(t, 1, s.clientCount())
				require.Equal(t, 1, s.cfg.Tracking.Stats().Clients)
				leaver.Close()
				settle()
				require.Equal(t, 1, s.clientCount())
			})
		})
	}
}

// TestKilledClientIsNotListed shows that after the reply of CLIENT KILL no answer has the killed client, even if its
// connection has not ended yet.
func TestKilledClientIsNotListed(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		victim, killer := s.silent(), s.dial()
		go victim.Write(command("PING")) // its reply is never read
		settle()
		killer.send(slices.Concat(command("CLIENT", "KILL", "ID", "1"), command("CLIENT", "KILL", "ID", "1")))
		killer.deliver(slices.Concat(command("CLIENT", "UNBLOCK", "1"), command("CLIENT", "ID")))
		got, _ := killer.take()
		require.Equal(t, ":1\r\n:0\r\n:0\r\n:2\r\n", got)
		require.Len(t, s.clients(), 1)
	})
}
