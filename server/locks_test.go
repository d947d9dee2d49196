package server_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server"
	"github.com/holdfast/holdfast/server/servertest"
)

// asks sends a command, and passes over messages.
func asks(t *testing.T, c *servertest.Client, words ...string) protocol.Value {
	t.Helper()
	require.NoError(t, c.Send(words))
	for {
		v, err := c.Receive()
		require.NoError(t, err, words)
		if v.Kind != protocol.KindPush {
			require.False(t, v.IsError(), "%s: %s", words, v.Str)
			return v
		}
	}
}

// session opens a session on a node and takes the lock k in it.
func session(t *testing.T, c *servertest.Cluster, n *servertest.Node, lease time.Duration,
	more ...string,
) (*servertest.Client, string) {
	t.Helper()
	client := c.Client(n, protocol.RESP3)
	id := fmt.Sprint(asks(t, client, append([]string{"SESSION.OPEN", "PX", fmt.Sprint(lease.Milliseconds())},
		more...)...).Num)
	require.Positive(t, asks(t, client, "LOCK.ACQUIRE", "k", "holder", "SESSION", id).Num)
	return client, id
}

// granted has a client wait for the lock k, and returns when it got the lock.
func granted(t *testing.T, c *servertest.Cluster, n *servertest.Node) <-chan time.Time {
	t.Helper()
	client := c.Client(n, protocol.RESP3)
	require.Zero(t, asks(t, client, "LOCK.ACQUIRE", "k", "waiter", "PX", "3600000", "WAIT", "0", "NOTIFY").Num)
	at := make(chan time.Time, 1)
	go func() {
		defer close(at)
		for {
			v, err := client.Receive()
			switch {
			case err == servertest.ErrSilent:
				continue
			case err == nil && v.Kind == protocol.KindPush && v.Elems[1].Str == "granted":
				at <- time.Now()
			}
			return
		}
	}()
	return at
}

// TestSessionEndsWithItsNode: after its lease and not before, counted from the last renewal, which was a third of
// the lease ago at most.
func TestSessionEndsWithItsNode(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, 12 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := servertest.New(t, servertest.Options{NoRefusalDelay: true})
			c.Lead(c.Node("n1"))
			session(t, c, c.Node("n2"), lease, "CONNECTION")
			next := granted(t, c, c.Node("n3"))
			time.Sleep(10*lease + time.Duration(rand.Int64N(int64(lease))))
			require.Empty(t, next)
			died := time.Now()
			c.Node("n2").Crash()
			took := (<-next).Sub(died)
			require.Greater(t, took, lease/3*2-100*time.Millisecond)
			require.Less(t, took, lease+2*time.Second)
			c.Stop()
		})
	}
}

// TestCutOffBeforeTheGrant: a node that is cut off, for as long as it likes, closes the connection before another
// client is granted what the session held.
func TestCutOffBeforeTheGrant(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			c := servertest.New(t, servertest.Options{NoRefusalDelay: true})
			c.Lead(c.Node("n1"))
			lease := time.Second + time.Duration(rng.Int64N(int64(20*time.Second)))
			cut := c.Node([]string{"n1", "n2"}[seed%2]) // the leader, or not
			holder, _ := session(t, c, cut, lease, "CONNECTION")
			next := granted(t, c, c.Node("n3"))
			time.Sleep(time.Duration(rng.Int64N(int64(3 * lease))))
			c.Net.Partition([]string{cut.Name}, c.Names(cut.Name))
			for holder.Connected() {
				select {
				case <-next:
					require.Fail(t, "granted while the holder was connected", "seed %d", seed)
				case <-time.After(time.Millisecond):
				}
			}
			if rng.IntN(2) == 0 {
				c.Net.Heal()
			}
			_, got := <-next
			require.True(t, got)
			c.Net.Heal()
			c.Stop()
		})
	}
}

// TestSessionsCostFewEntries: renewals of all sessions of a node are one entry, and cluster time is one a second.
func TestSessionsCostFewEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := servertest.New(t, servertest.Options{NoRefusalDelay: true})
		client := c.Client(c.Node("n2"), protocol.RESP3)
		for range 30 {
			id := fmt.Sprint(asks(t, client, "SESSION.OPEN", "PX", "30000", "CONNECTION").Num)
			for i := range 10 {
				require.Positive(t, asks(t, client, "LOCK.ACQUIRE", fmt.Sprint(id, " ", i), "me", "SESSION", id).Num)
			}
		}
		time.Sleep(time.Minute)
		before := c.Entries()
		time.Sleep(3 * time.Minute)
		require.Less(t, c.Entries()-before, uint64(180+18+10))
		require.EqualValues(t, 300, asks(t, client, "DBSIZE").Num)
		client.Close()
		time.Sleep(time.Second)
		client = c.Client(c.Node("n3"), protocol.RESP3)
		require.Zero(t, asks(t, client, "DBSIZE").Num)
		before = c.Entries()
		time.Sleep(3 * time.Minute)
		require.Less(t, c.Entries()-before, uint64(5), "nothing is left, so the log rests")
		client.Close()
		c.Stop()
	})
}

// TestLossBehindASnapshot: a node that missed the entries that say so tells the loss all the same.
func TestLossBehindASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := servertest.New(t, servertest.Options{NoRefusalDelay: true, Tune: func(conf *server.Config) {
			conf.TrailingLogs = 5
		}})
		c.Lead(c.Node("n1"))
		holder, id := session(t, c, c.Node("n3"), time.Hour)
		time.Sleep(time.Second)
		c.Net.Partition([]string{"n3"}, c.Names("n3"))
		other := c.Client(c.Node("n1"), protocol.RESP2)
		require.EqualValues(t, 1, asks(t, other, "SESSION.CLOSE", id).Num)
		for range 20 {
			asks(t, other, "INCR", "x")
		}
		for _, name := range []string{"n1", "n2"} {
			require.NoError(t, c.Node(name).Replica().TakeSnapshot())
		}
		c.Net.Heal()
		c.Settle()
		synctest.Wait()
		heard, lost := holder.Heard()
		require.False(t, lost)
		require.Len(t, heard, 1)
		require.Equal(t, "lost", heard[0].Elems[1].Str)
		require.Contains(t, []string{"unknown", "session"}, heard[0].Elems[5].Str,
			"the entry may have been quicker than the snapshot")
		holder.Close()
		other.Close()
		c.Stop()
	})
}

// TestHeartbeat: where a client has promised to send something within its lease, and is silent, what its session holds
// is free when the lease has passed since its last command, and not before. Else the node renews for it.
func TestHeartbeat(t *testing.T) {
	const lease = 10 * time.Second
	type opener = func(c *servertest.Cluster) (holder *servertest.Client, id string)
	open := func(more ...string) opener {
		return func(c *servertest.Cluster) (*servertest.Client, string) {
			return session(t, c, c.Node("n2"), lease, more...)
		}
	}
	attach := func(more ...string) opener {
		return func(c *servertest.Cluster) (*servertest.Client, string) {
			first, id := session(t, c, c.Node("n2"), lease, "CONNECTION", "HEARTBEAT")
			second := c.Client(c.Node("n3"), protocol.RESP3)
			asks(t, second, append([]string{"SESSION.ATTACH", id}, more...)...)
			first.Close()
			return second, id
		}
	}
	inMulti := func(c *servertest.Cluster) (*servertest.Client, string) {
		client := c.Client(c.Node("n2"), protocol.RESP3)
		asks(t, client, "MULTI")
		asks(t, client, "SESSION.OPEN", "NAME", "HEARTBEAT", "PX", "10000", "HEARTBEAT", "CONNECTION", "heartbeat")
		id := fmt.Sprint(asks(t, client, "EXEC").Elems[0].Num)
		require.Positive(t, asks(t, client, "LOCK.ACQUIRE", "k", "holder", "SESSION", id).Num)
		return client, id
	}
	for name, of := range map[string]struct {
		open opener
		ends bool
	}{
		"opened":         {open("CONNECTION", "HEARTBEAT"), true},
		"attached":       {attach("HEARTBEAT"), true},
		"in MULTI":       {inMulti, true},
		"not demanded":   {open("CONNECTION"), false},
		"a name":         {open("CONNECTION", "NAME", "HEARTBEAT"), false},
		"attached alone": {attach(), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := servertest.New(t, servertest.Options{NoRefusalDelay: true})
				holder, id := of.open(c)
				next := granted(t, c, c.Node("n1"))
				for range 11 {
					time.Sleep(3 * time.Second)
					asks(t, holder, "PING")
				}
				last := time.Now()
				require.Empty(t, next)
				if of.ends {
					took := (<-next).Sub(last)
					require.GreaterOrEqual(t, took, lease)
					require.Less(t, took, lease+500*time.Millisecond)
					time.Sleep(time.Second) // until the holder's node, a follower, has applied the entry
					require.False(t, holder.Connected(), "the client learns of it when it wakes")
				} else {
					time.Sleep(3 * time.Minute)
					require.Empty(t, next)
					asks(t, holder, "SESSION.ATTACH", id, "HEARTBEAT")
					time.Sleep(lease + time.Second)
					require.Len(t, next, 1)
				}
				c.Stop()
			})
		})
	}
}

// TestSessionsOfUsersOnAllNodes: on every node, and behind a failover, a session is its user's and no other's.
func TestSessionsOfUsersOnAllNodes(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.acl")
	require.NoError(t, os.WriteFile(file, []byte("user default off\nuser billing on >p ~billing:* +@all -@dangerous\n"+
		"user orders on >p ~orders:* +@all -@dangerous\n"), 0o600))
	synctest.Test(t, func(t *testing.T) {
		c := servertest.New(t, servertest.Options{Tune: func(conf *server.Config) { conf.ACLFile = file }})
		as := func(n *servertest.Node, user string) *servertest.Client {
			client := c.Client(n, protocol.RESP3)
			asks(t, client, "AUTH", user, "p")
			return client
		}
		id := fmt.Sprint(asks(t, as(c.Node("n1"), "billing"), "SESSION.OPEN", "PX", "60000").Num)
		for range 2 {
			for _, n := range c.Nodes() {
				owner, other := as(n, "billing"), as(n, "orders")
				for _, word := range []string{"SESSION.INFO", "SESSION.KEEPALIVE", "SESSION.ATTACH", "SESSION.CLOSE"} {
					require.True(t, asks(t, other, word, id).IsNull(), "%s on %s", word, n.Name)
				}
				v, err := other.Do("LOCK.ACQUIRE", "orders:k", "x", "SESSION", id)
				require.NoError(t, err)
				require.Equal(t, protocol.ErrNoSession.Value().Str, v.Str)
				require.EqualValues(t, 60000, asks(t, owner, "SESSION.KEEPALIVE", id).Num)
			}
			died := c.Leader()
			died.Crash()
			c.Leader()
			died.Start()
		}
	})
}
