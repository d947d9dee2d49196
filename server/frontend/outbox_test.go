package frontend

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/push"
)

func message(text string) *push.Message {
	return push.New(protocol.Push(protocol.Bulk("message"), protocol.Bulk(text)))
}

// messageBytes returns the message as a client of RESP2 receives it.
func messageBytes(text string) string {
	return string(protocol.Strings("message", text).AppendTo(nil, protocol.RESP2))
}

// postAll posts m to every client.
func (s *testServer) postAll(m *push.Message) {
	for _, c := range s.clients() {
		c.Post(m)
	}
}

// TestPostWakesIdleConnection shows that a message is sent to an idle client at once, in the client's protocol version,
// and that the client is served as before.
func TestPostWakesIdleConnection(t *testing.T) {
	inBubble(t, Config{Timeouts: Timeouts{IdleTimeout: time.Minute}}, func(t *testing.T, s *testServer) {
		c := s.dial()
		settle()
		for range 3 {
			s.postAll(message("one"))
			s.postAll(message("two"))
			settle()
			got, _ := c.take()
			require.Equal(t, messageBytes("one")+messageBytes("two"), got)
			require.Equal(t, "+PONG\r\n", answer(c, "PING"))
		}
		answer(c, "HELLO", "3")
		s.postAll(message("x"))
		settle()
		got, _ := c.take()
		require.Equal(t, ">"+messageBytes("x")[1:], got)
		require.Equal(t, int64(connBytes), s.memory.total.Load())
		// Messages neither shorten nor extend the idle timeout.
		time.Sleep(time.Minute - time.Second)
		_, closed := c.take()
		require.False(t, closed)
		time.Sleep(2 * time.Second)
		_, closed = c.take()
		require.True(t, closed)
	})
}

// TestMessagesLeaveBetweenPipelines shows that messages that arrive while a batch is executed follow the replies of the
// batch.
func TestMessagesLeaveBetweenPipelines(t *testing.T) {
	inBubble(t, Config{Limits: Limits{MaxPipeline: 2}}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		c := s.dial()
		gate := make(chan struct{})
		cl.set(func() { cl.gate = gate })
		c.deliver([]byte(strings.Repeat(string(command("INCR", "n")), 3)))
		s.postAll(message("x"))
		settle()
		got, _ := c.take()
		require.Empty(t, got)
		close(gate)
		settle()
		got, _ = c.take()
		require.Equal(t, ":1\r\n:2\r\n"+messageBytes("x")+":3\r\n", got)
	})
}

// TestMessageAroundHalfCommand shows that a message that arrives between two parts of a command does not affect the
// command.
func TestMessageAroundHalfCommand(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		c := s.dial()
		echo := command("ECHO", "hello")
		c.deliver(echo[:12])
		s.postAll(message("x"))
		settle()
		c.deliver(echo[12:])
		got, _ := c.take()
		require.Equal(t, messageBytes("x")+"$5\r\nhello\r\n", got)
	})
}

// TestLargeMessage shows that a message larger than a chunk of output arrives whole.
func TestLargeMessage(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		c := s.dial()
		settle()
		text := strings.Repeat("0123456789", 100_000)
		s.postAll(message(text))
		s.postAll(message("x"))
		settle()
		got, _ := c.take()
		require.Equal(t, messageBytes(text)+messageBytes("x"), got)
	})
}

// TestManyPosts shows on real sockets, with and without TLS, that no message is lost or out of order while the client
// sends commands, and that the last message wakes the connection, too.
func TestManyPosts(t *testing.T) {
	own, pool := certificate(t)
	for _, encrypted := range []bool{false, true} {
		t.Run(fmt.Sprint("encrypted ", encrypted), func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			cfg := Config{}
			if encrypted {
				cfg.TLS = &tls.Config{Certificates: []tls.Certificate{own}}
			}
			s := startOn(t, cfg, newCluster(), ln)
			nc, err := net.Dial("tcp", ln.Addr().String())
			require.NoError(t, err)
			defer nc.Close()
			if encrypted {
				nc = tls.Client(nc, &tls.Config{RootCAs: pool, ServerName: "localhost"})
			}
			require.NoError(t, nc.SetDeadline(time.Now().Add(30*time.Second)))
			_, err = nc.Write(command("PING"))
			require.NoError(t, err)
			r := bufio.NewReader(nc)
			line, err := r.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "+PONG\r\n", line)

			const messages, pings = 3000, 1000
			to := s.clients()[0]
			var all sync.WaitGroup
			all.Go(func() {
				for i := range messages {
					to.Post(push.New(protocol.Push(protocol.Integer(int64(i)))))
				}
			})
			all.Go(func() {
				for range pings {
					nc.Write(command("PING"))
				}
			})
			heard, ponged := 0, 0
			for heard < messages || ponged < pings {
				line, err := r.ReadString('\n')
				require.NoError(t, err, "%d messages, %d replies", heard, ponged)
				if line == "+PONG\r\n" {
					ponged++
					continue
				}
				require.Equal(t, "*1\r\n", line)
				line, err = r.ReadString('\n')
				require.NoError(t, err)
				require.Equal(t, fmt.Sprintf(":%d\r\n", heard), line)
				heard++
			}
			all.Wait()
		})
	}
}

// hiddenSockets is a listener whose connections do not expose their sockets.
type hiddenSockets struct{ net.Listener }

func (l hiddenSockets) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	return struct{ net.Conn }{nc}, err
}

// TestClientOfManyMessagesIsHeard shows that a client's commands are answered while there are always messages for it.
func TestClientOfManyMessagesIsHeard(t *testing.T) {
	for _, tcp := range []bool{false, true} {
		t.Run(fmt.Sprint("tcp ", tcp), func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			if !tcp {
				ln = hiddenSockets{ln}
			}
			s := startOn(t, Config{}, newCluster(), ln)
			nc, err := net.Dial("tcp", ln.Addr().String())
			require.NoError(t, err)
			defer nc.Close()
			require.Eventually(t, func() bool { return len(s.clients()) == 1 }, 10*time.Second, time.Millisecond)
			to := s.clients()[0]
			stop := make(chan struct{})
			var all sync.WaitGroup
			defer all.Wait()
			defer close(stop)
			all.Go(func() {
				m := message(strings.Repeat("x", 1000))
				for {
					select {
					case <-stop:
						return
					default:
					}
					if to.outbox.held.Load() < 100_000 {
						to.Post(m)
					}
				}
			})
			_, err = nc.Write(command("PING"))
			require.NoError(t, err)
			require.NoError(t, nc.SetDeadline(time.Now().Add(30*time.Second)))
			for r := bufio.NewReader(nc); ; {
				line, err := r.ReadString('\n')
				require.NoError(t, err)
				if line == "+PONG\r\n" {
					return
				}
			}
		})
	}
}

// TestOutputLimits shows that a client that does not read its messages is disconnected at the limits of its class, and
// delays no other client.
func TestOutputLimits(t *testing.T) {
	limit := OutputLimit{HardBytes: 1_000_000, SoftBytes: 300_000, SoftTime: time.Minute}
	for _, test := range []struct {
		name       string
		subscriber bool
		bytes      int // that are posted
		from, to   time.Duration
	}{
		{"a subscriber below the soft limit stays", true, 200_000, 0, 0},
		{"a subscriber above the soft limit", true, 900_000, time.Minute, time.Minute + time.Second},
		{"a subscriber above the hard limit", true, 1_500_000, 0, 20 * time.Millisecond},
		{"another client that takes nothing", false, 200_000, 30 * time.Second, 33 * time.Second},
		{"another client, above its soft limit", false, 900_000, time.Second, 3 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, Config{Limits: Limits{MaxOutputBytes: 600_000, PubSub: limit}}, func(t *testing.T, s *testServer) {
				s.silent()
				settle()
				bad := s.clients()[0]
				bad.outbox.setSubscriber(test.subscriber)
				good := s.dial()
				settle()
				began := time.Now()
				const size = 10_000
				for range test.bytes / size {
					s.postAll(message(strings.Repeat("x", size)))
				}
				settle()
				got, _ := good.take()
				require.Len(t, got, test.bytes/size*len(messageBytes(strings.Repeat("x", size))))
				for s.metrics.CutOff.Load() == 0 && time.Since(began) < time.Hour {
					time.Sleep(100 * time.Millisecond)
				}
				took := time.Since(began)
				if test.to == 0 {
					require.Zero(t, s.metrics.CutOff.Load())
				} else {
					require.GreaterOrEqual(t, took, test.from)
					require.LessOrEqual(t, took, test.to)
					settle()
					require.Equal(t, 1, s.clientCount())
					require.Equal(t, int64(connBytes), s.memory.total.Load())
					require.EqualValues(t, 1, s.metrics.CutOff.Load())
				}
			})
		})
	}
}

// TestSoftLimitCountsAnew shows that SoftTime begins again after a subscriber has read.
func TestSoftLimitCountsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := OutputLimit{HardBytes: 1_000_000, SoftBytes: 300_000, SoftTime: time.Minute}
		s := start(t, Config{Limits: Limits{PubSub: limit}}, newCluster())
		nc := s.silent()
		settle()
		s.clients()[0].outbox.setSubscriber(true)
		for range 3 {
			for range 50 {
				s.postAll(message(strings.Repeat("x", 10_000)))
			}
			time.Sleep(50 * time.Second)
			require.Equal(t, 1, s.clientCount())
			require.NoError(t, nc.SetReadDeadline(time.Now().Add(time.Second)))
			_, _ = io.Copy(io.Discard, nc)
			s.postAll(message("x"))
			_, _ = io.CopyN(io.Discard, nc, 1)
		}
		require.Zero(t, s.metrics.CutOff.Load())
	})
}

// TestMessagesCountOnce shows that a message for many clients counts once in the memory of all clients, until the last
// client has taken it, and that the client with the most unread messages is evicted.
func TestMessagesCountOnce(t *testing.T) {
	inBubble(t, Config{Memory: Memory{MaxMemoryClientsBytes: 1 << 20}}, func(t *testing.T, s *testServer) {
		idle := s.memory.total.Load()
		require.Zero(t, idle)
		for range 3 {
			s.silent()
		}
		good := s.dial()
		settle()
		clients := s.clients()
		for _, c := range clients {
			c.outbox.setSubscriber(true)
		}
		idle = s.memory.total.Load()
		const size = 300_000
		s.postAll(message(strings.Repeat("x", size)))
		settle()
		got, _ := good.take()
		require.Greater(t, len(got), size)
		// Each client also has a chunk of output that is being written.
		less := s.memory.total.Load() - idle
		require.GreaterOrEqual(t, less, int64(size))
		require.Less(t, less, int64(2*size))
		// Everything fits except the messages that only the first client gets.
		for range 4 {
			clients[0].Post(message(strings.Repeat("y", size)))
		}
		settle()
		require.EqualValues(t, 1, s.metrics.Evicted.Load())
		require.Equal(t, clients[1:], s.clients())
		require.Less(t, s.memory.total.Load()-idle, int64(2*size))
		for _, c := range clients[1:3] {
			c.nc.Close()
		}
		settle()
		require.Equal(t, int64(connBytes), s.memory.total.Load())
	})
}

// TestPostAtTheEnd shows that posting to a connection that ends or has ended is harmless, and that the message is
// released.
func TestPostAtTheEnd(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		c := s.dial()
		settle()
		conn := s.clients()[0]
		m := message("x")
		conn.Post(m)
		c.deliver(command("QUIT"))
		conn.Post(m)
		got, closed := c.take()
		require.True(t, closed)
		require.Contains(t, got, "+OK\r\n")
		require.Zero(t, s.memory.total.Load())
		require.True(t, m.Hold())
	})
}

// TestMessagesOverTLSToSlowSubscriber shows that over TLS a subscriber that pauses for 50 seconds stays connected, and
// that one that does not read for two minutes is disconnected.
func TestMessagesOverTLSToSlowSubscriber(t *testing.T) {
	own, pool := certificate(t)
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{TLS: &tls.Config{Certificates: []tls.Certificate{own}}}
		s := start(t, cfg, newCluster())
		nc := tls.Client(s.silent(), &tls.Config{RootCAs: pool, ServerName: "localhost"})
		_, err := nc.Write(command("PING"))
		require.NoError(t, err)
		_, err = io.ReadFull(nc, make([]byte, len("+PONG\r\n")))
		require.NoError(t, err)
		settle()
		s.clients()[0].outbox.setSubscriber(true)
		s.postAll(message("x"))
		time.Sleep(50 * time.Second)
		got := make([]byte, len(messageBytes("x")))
		_, err = io.ReadFull(nc, got)
		require.NoError(t, err)
		require.Equal(t, messageBytes("x"), string(got))
		s.postAll(message("y"))
		time.Sleep(2 * time.Minute)
		require.Zero(t, s.clientCount())
		require.EqualValues(t, 1, s.metrics.CutOff.Load())
	})
}

// TestDoze shows that a connection's goroutine does not wait if there is a message already, and that a later message
// wakes it.
func TestDoze(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	c := newConn(New(Config{}, newCluster()), theirs, protocol.Redis())
	c.Post(message("before"))
	require.False(t, c.armWake(nil))
	require.NotEmpty(t, c.takeMessages(nil, 1000, protocol.RESP2))
	require.True(t, c.armWake(nil))
	require.False(t, c.disarmWake())
	require.True(t, c.armWake(nil))
	c.Post(message("later"))
	require.True(t, c.disarmWake())
}
