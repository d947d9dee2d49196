package frontend

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/pubsub"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/tracking"
)

// TestSubscriptionsAreBounded shows that a client's subscriptions count as its memory, that those beyond the limit are
// refused, and that nothing of them is left after the client has disconnected.
func TestSubscriptionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = subscriptionBytes + 10
		s := start(t, Config{Limits: Limits{MaxSubscriptionBytes: 3000 * each}}, newCluster())
		c := s.dial()
		for kind, verb := range []string{"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"} {
			words := []string{verb}
			for i := range 1000 {
				words = append(words, fmt.Sprintf("%010d", i))
			}
			require.Equal(t, 1000, strings.Count(answer(c, words...), "subscribe\r\n"))
			require.Equal(t, 1000, s.cfg.Hub.Topics(pubsub.Kind(kind)))
		}
		require.GreaterOrEqual(t, s.memory.total.Load(), int64(3000*each)&^(memoryUnit-1))
		require.Equal(t, fmt.Sprintf("-ERR subscriptions exceed maximum allowed size (%d bytes)\r\n", 3000*each),
			answer(c, "SUBSCRIBE", "one more"))
		require.Equal(t, 1000, strings.Count(answer(c, "PUNSUBSCRIBE"), "punsubscribe\r\n"))
		c.nc.Close()
		settle()
		require.Zero(t, s.cfg.Hub.Clients())
		require.Zero(t, s.memory.total.Load())
	})
}

// TestSubscribeWhileBehind shows that a node that cannot reach the cluster refuses subscriptions, and accepts them once
// it can.
func TestSubscribeWhileBehind(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		cl.set(func() { cl.fail = errorRow("CLUSTERDOWN No leader is known, the command was not applied") })
		c := s.dial()
		require.Equal(t, "-CLUSTERDOWN No leader is known, the command was not applied\r\n", answer(c, "SUBSCRIBE", "a"))
		answer(c, "GET", "k")
		cl.set(func() { cl.fail = nil })
		require.Contains(t, answer(c, "SUBSCRIBE", "a"), "subscribe\r\n$1\r\na\r\n:1\r\n")
		// A further subscription adds no entry to the log.
		before := cl.seq
		c.deliver(command("SUBSCRIBE", "b"))
		require.Equal(t, before, cl.seq)
	})
}

// TestLateSubscriptionIsNotConfirmed shows that if the node's lease ends before the subscriptions begin, none is
// confirmed, even if the confirmations are larger than the buffer, and the connection is closed.
func TestLateSubscriptionIsNotConfirmed(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		c := s.dial()
		require.Equal(t, ":0\r\n", answer(c, "PUBLISH", "c", "before"))
		cl.set(func() { cl.lag = replica.PresenceLease + time.Second })
		words := []string{"SUBSCRIBE"}
		for i := range 10_000 {
			words = append(words, fmt.Sprint(i))
		}
		c.send(command(words...))
		time.Sleep(time.Minute)
		settle()
		got, closed := c.take()
		require.Empty(t, got)
		require.True(t, closed)
	})
}

// TestSlowSubscriber shows that a subscriber that does not read is disconnected, and that the others receive every
// message meanwhile.
func TestSlowSubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := OutputLimit{HardBytes: 1_000_000, SoftBytes: 1_000_000, SoftTime: time.Minute}
		s := start(t, Config{Limits: Limits{PubSub: limit}}, newCluster())
		slow, good, publisher := s.silent(), s.dial(), s.dial()
		go slow.Write(command("SUBSCRIBE", "a"))
		answer(good, "SUBSCRIBE", "a")
		text := strings.Repeat("x", 100_000)
		for i := range 20 {
			publisher.deliver(command("PUBLISH", "a", text))
			got, _ := good.take()
			require.Equal(t, 1, strings.Count(got, "message\r\n"), i)
		}
		require.EqualValues(t, 1, s.metrics.CutOff.Load())
		require.Equal(t, 1, s.cfg.Hub.Clients())
		got, _ := publisher.take()
		require.True(t, strings.HasPrefix(got, ":2\r\n") && strings.HasSuffix(got, ":1\r\n"), got)
	})
}

// TestPrefixesAreBounded shows that the prefixes of BCAST count as the client's memory, that those beyond the limit are
// refused, and that nothing of them is left after the client has disconnected.
func TestPrefixesAreBounded(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		c := s.dial()
		words := []string{"CLIENT", "TRACKING", "ON", "REDIRECT", "1", "BCAST"}
		for i := range tracking.MaxPrefixes {
			words = append(words, "PREFIX", fmt.Sprintf("%0100d", i))
		}
		require.Equal(t, "-ERR too many prefixes\r\n", answer(c, append(words, "PREFIX", "one more")...))
		before := s.memory.total.Load()
		require.Equal(t, "+OK\r\n", answer(c, words...))
		const held = tracking.MaxPrefixes * (100 + prefixBytes)
		require.GreaterOrEqual(t, s.memory.total.Load()-before, int64(held-memoryUnit))
		require.Equal(t, "-ERR too many prefixes\r\n",
			answer(c, "CLIENT", "TRACKING", "ON", "REDIRECT", "1", "BCAST", "PREFIX", "one more"))
		c.nc.Close()
		settle()
		require.Zero(t, s.memory.total.Load())
		require.Zero(t, s.cfg.Tracking.Stats())
	})
}
