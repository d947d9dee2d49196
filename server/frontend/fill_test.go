package frontend

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/pubsub"
)

// In these tests several connections use up a resource that all clients share. Another client must be served meanwhile,
// and the resource must be free again after the connections have ended.

// requireServed requires that the client can write, read, and acquire and release a lock.
func (c *testClient) requireServed() {
	c.t.Helper()
	require.Equal(c.t, "+OK\r\n", answer(c, "SET", "bystander", "v"))
	require.Equal(c.t, "$1\r\nv\r\n", answer(c, "GET", "bystander"))
	require.Regexp(c.t, `^:[1-9]\d*\r\n$`, answer(c, "LOCK.ACQUIRE", "bystander's", "me", "PX", "10000"))
	require.Equal(c.t, ":0\r\n", answer(c, "LOCK.RELEASE", "bystander's", "me"))
}

// requireInfo requires that the reply to INFO has the lines.
func (c *testClient) requireInfo(lines ...string) {
	c.t.Helper()
	info := answer(c, "INFO", "everything")
	for _, line := range lines {
		require.Contains(c.t, info, "\r\n"+line+"\r\n")
	}
}

// dialMany connects n clients.
func (s *testServer) dialMany(n int) []*testClient {
	clients := make([]*testClient, n)
	for i := range clients {
		clients[i] = s.dial()
	}
	settle()
	return clients
}

// leave ends the connections of clients: CLIENT KILL closes every second one, and the others disconnect. first is the
// ID of the first client.
func leave(by *testClient, first int, clients []*testClient) {
	for i, c := range clients {
		if i%2 == 0 {
			answer(by, "CLIENT", "KILL", "ID", fmt.Sprint(first+i))
		} else {
			c.nc.Close()
		}
	}
	settle()
}

// requireEmpty requires that one connection is left, and that it uses no more memory than an idle one.
func (s *testServer) requireEmpty() {
	s.t.Helper()
	require.Equal(s.t, 1, s.clientCount())
	require.Equal(s.t, int64(connBytes), s.memory.total.Load())
}

// TestFillOfSubscriptions shows that the subscriptions of all connections together are bounded, even if each connection
// is far below its own limit. The connection with the most memory is evicted.
func TestFillOfSubscriptions(t *testing.T) {
	for kind, verb := range []string{"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const limit, each = 2 << 20, 100
				s := start(t, Config{Memory: Memory{MaxMemoryClientsBytes: limit}}, newCluster())
				good := s.dial()
				settle()
				hostile := s.dialMany(8)
				for round := 0; s.metrics.Evicted.Load() < 2; round++ {
					require.Less(t, round, 50, "subscriptions are not bounded")
					for i, c := range hostile {
						words := []string{verb}
						for n := range each {
							words = append(words, fmt.Sprintf("%d:%d:%d", i, round, n))
						}
						answer(c, words...)
						require.LessOrEqual(t, s.memory.total.Load(), int64(limit))
					}
					good.requireServed()
				}
				require.Greater(t, s.cfg.Hub.Topics(pubsub.Kind(kind)), 3000)
				good.requireInfo("evicted_clients:2", "pubsub_clients:6")
				leave(good, 2, hostile)
				s.requireEmpty()
				require.Zero(t, s.cfg.Hub.Topics(pubsub.Kind(kind)))
				good.requireInfo("pubsub_clients:0", "pubsub_channels:0", "pubsub_patterns:0", "pubsubshard_channels:0")
				require.Contains(t, answer(s.dial(), verb, "again"), "again\r\n:1\r\n")
			})
		})
	}
}

// TestFillOfPrefixes shows that the prefixes of all clients with BCAST tracking count toward the memory of all clients,
// and that clients are evicted beyond its limit.
func TestFillOfPrefixes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 1 << 20
		s := start(t, Config{Memory: Memory{MaxMemoryClientsBytes: limit}}, newCluster())
		good := s.dial()
		settle()
		hostile := s.dialMany(8)
		for i, c := range hostile {
			words := []string{"CLIENT", "TRACKING", "ON", "REDIRECT", "1", "BCAST"}
			for n := range 900 {
				words = append(words, "PREFIX", fmt.Sprintf("%d:%08d", i, n))
			}
			c.deliver(command(words...))
			require.LessOrEqual(t, s.memory.total.Load(), int64(limit))
			good.requireServed()
		}
		evicted := int(s.metrics.Evicted.Load())
		require.Greater(t, evicted, 2)
		good.requireInfo(fmt.Sprintf("tracking_clients:%d", 8-evicted))
		leave(good, 2, hostile)
		s.requireEmpty()
		require.Zero(t, s.cfg.Tracking.Stats())
		good.requireInfo("tracking_clients:0")
		require.Equal(t, "+OK\r\n", answer(s.dial(), "CLIENT", "TRACKING", "ON", "REDIRECT", "1", "BCAST", "PREFIX", "again"))
	})
}

// TestFillOfPrefixLengths shows that the number of different prefix lengths of all clients together is bounded. A
// length is free again after the last client with such a prefix has disconnected.
func TestFillOfPrefixLengths(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		good := s.dial()
		settle()
		track := func(c *testClient, length int) string {
			return answer(c, "CLIENT", "TRACKING", "ON", "REDIRECT", "1", "BCAST", "PREFIX", strings.Repeat("p", length))
		}
		hostile := s.dialMany(65)
		for i, c := range hostile[:64] {
			require.Equal(t, "+OK\r\n", track(c, i+1))
		}
		const refused = "-ERR too many different lengths of prefixes\r\n"
		require.Equal(t, refused, track(hostile[64], 65))
		require.Equal(t, "+OK\r\n", track(hostile[64], 64), "a length that is there already")
		good.requireServed()
		good.requireInfo("tracking_clients:65")
		hostile[63].nc.Close()
		settle()
		another := s.dial()
		require.Equal(t, refused, track(another, 65), "another client has a prefix of 64 bytes")
		hostile[64].nc.Close()
		settle()
		require.Equal(t, "+OK\r\n", track(another, 65))
		another.nc.Close()
		leave(good, 2, hostile[:63])
		s.requireEmpty()
		good.requireInfo("tracking_clients:0")
		require.Equal(t, "+OK\r\n", track(s.dial(), 100))
	})
}

// TestFillOfWaiters shows that the number of keys for which all clients together wait is bounded. A client beyond the
// bound gets TRYAGAIN, and can wait after the others have disconnected. If a request names a key several times, the key
// counts each time, so a few clients reach the bound.
func TestFillOfWaiters(t *testing.T) {
	protocoltest.SkipShort(t, "fills a limit")
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		good := s.dial()
		settle()
		words := append(append([]string{"BLPOP"}, strings.Split(strings.Repeat("q ", 50_000), " ")[:50_000]...), "0")
		greedy := command(words...)
		var hostile []*testClient
		for got := ""; got == ""; {
			require.Less(t, len(hostile), 60, "waiters are not bounded")
			c := s.dial()
			hostile = append(hostile, c)
			c.deliver(greedy)
			cl.take()
			if got, _ = c.take(); got != "" {
				require.Equal(t, "-TRYAGAIN Too many clients wait for keys, the command was not applied\r\n", got)
			}
		}
		require.Greater(t, len(hostile), 40)
		good.requireServed()
		good.requireInfo(fmt.Sprintf("blocked_clients:%d", len(hostile)-1))
		require.Equal(t, "*2\r\n$5\r\nother\r\n$1\r\nx\r\n", func() string {
			answer(good, "RPUSH", "other", "x")
			return answer(good, "BLPOP", "other", "0")
		}())
		leave(good, 2, hostile)
		s.requireEmpty()
		good.requireInfo("blocked_clients:0")
		require.Equal(t, ":1\r\n", answer(good, "RPUSH", "q", "x"), "closed waiters take no element")
		answer(good, "DEL", "q")
		again := s.dial()
		require.Empty(t, answer(again, words...))
		answer(good, "RPUSH", "q", "y")
		got, _ := again.take()
		require.Equal(t, "*2\r\n$1\r\nq\r\n$1\r\ny\r\n", got)
	})
}

// TestFillOfLockQueues shows that after many clients that waited for a lock have disconnected, no waiter is left, and
// the lock is granted to the next client that requests it.
func TestFillOfLockQueues(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		good := s.dial()
		settle()
		require.Equal(t, ":1\r\n", answer(good, "LOCK.ACQUIRE", "k", "me", "PX", "1000000"))
		hostile := s.dialMany(200)
		for i, c := range hostile {
			require.Empty(t, answer(c, "LOCK.ACQUIRE", "k", fmt.Sprint("owner", i), "PX", "1000000", "WAIT", "0"))
		}
		good.requireServed()
		good.requireInfo("blocked_clients:200", "lock_waiters:200")
		leave(good, 2, hostile)
		s.requireEmpty()
		good.requireInfo("blocked_clients:0", "lock_waiters:0")
		require.Equal(t, ":0\r\n", answer(good, "LOCK.RELEASE", "k", "me"))
		require.Regexp(t, `^:[1-9]\d*\r\n$`, answer(s.dial(), "LOCK.ACQUIRE", "k", "another", "PX", "1000"))
	})
}

// TestFillOfMessages shows that the messages for all clients together are bounded, even if each subscriber that does
// not read is below the limits of a subscriber. The client with the most unread messages is evicted, and a subscriber
// that reads receives every message.
func TestFillOfMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, size = 4 << 20, 100_000
		cl := newCluster()
		s := start(t, Config{Memory: Memory{MaxMemoryClientsBytes: limit}}, cl)
		good := s.dial()
		reader := s.dial()
		require.NotEmpty(t, answer(reader, "PSUBSCRIBE", "*"))
		var slow []net.Conn
		for i := range 8 {
			nc := s.silent()
			slow = append(slow, nc)
			go nc.Write(command("SUBSCRIBE", fmt.Sprint("own", i)))
			settle()
		}
		text := strings.Repeat("x", size)
		for round := 0; s.metrics.Evicted.Load() < 2; round++ {
			require.Less(t, round, 20, "messages are not bounded")
			for i := range slow {
				require.Regexp(t, `^:[12]\r\n$`, answer(good, "PUBLISH", fmt.Sprint("own", i), text))
				got, closed := reader.take()
				require.Equal(t, 1, strings.Count(got, text))
				require.False(t, closed)
				require.LessOrEqual(t, s.memory.total.Load(), int64(limit))
				cl.take()
			}
			good.requireServed()
		}
		require.Zero(t, s.metrics.CutOff.Load(), "none is beyond a limit of its own")
		for _, nc := range slow {
			nc.Close()
		}
		reader.nc.Close()
		settle()
		s.requireEmpty()
		good.requireInfo("pubsub_clients:0", "pubsub_channels:0")
	})
}
