package replica_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/push"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

// shortLog has nodes take snapshots often and keep few log entries, so that a follower that was away needs a snapshot.
func shortLog(c *replica.Config) {
	patience(c)
	c.SnapshotPolicy = replica.SnapshotPolicy{SnapshotThreshold: 20, SnapshotInterval: time.Second, TrailingLogs: 4}
}

// TestSnapshotSwallowsAReply: a follower forwards a write, is cut off, and then gets a snapshot that contains the
// write. No node has the reply any more, so its client gets ErrUncertain. The write took effect once.
func TestSnapshotSwallowsAReply(t *testing.T) {
	inBubble(t, shortLog, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		follower := c.Followers()[0]
		require.Equal(t, protocol.Integer(1), follower.Do("INCR", "n"))
		c.Net.Cut(leader.Name, follower.Name)
		reply := later(follower, "INCR", "n")
		time.Sleep(100 * time.Millisecond)
		c.Net.Isolate(follower.Name)
		require.Equal(t, protocol.Bulk("2"), leader.Do("GET", "n"))
		for i := range 200 {
			require.Equal(t, protocol.OK, leader.Do("SET", fmt.Sprint("k", i), "v"))
			time.Sleep(20 * time.Millisecond)
		}
		leader.Crash() // otherwise it sends the entry itself, as it has tried to
		c.Net.Heal()
		require.Equal(t, protocol.ErrUncertain.Value(), <-reply)
		require.NotEmpty(t, events[replica.Restored](follower))
		require.Equal(t, protocol.Integer(3), follower.Do("INCR", "n"))
		c.Settle()
	})
}

// TestRestartFromSnapshot: a node that starts from a snapshot has its former state.
func TestRestartFromSnapshot(t *testing.T) {
	inBubble(t, shortLog, func(t *testing.T, c *replicatest.Cluster) {
		for i := range 100 {
			require.Equal(t, protocol.Integer(int64(i+1)), c.Leader().Do("INCR", "n"))
			time.Sleep(20 * time.Millisecond)
		}
		for _, n := range c.Nodes() {
			require.NotEmpty(t, events[replica.SnapshotTaken](n))
			n.Crash()
			n.Start()
			require.Equal(t, protocol.Bulk("100"), n.Do("GET", "n"))
			require.NotEmpty(t, events[replica.Restored](n))
			c.Settle()
		}
	})
}

// TestLargeEntriesCutTheLog: the bytes of entries, and not only their number, cause a snapshot.
func TestLargeEntriesCutTheLog(t *testing.T) {
	few := func(c *replica.Config) { c.SnapshotBytes = 1 << 20 }
	inBubble(t, few, func(t *testing.T, c *replicatest.Cluster) {
		for range 12 {
			require.Equal(t, protocol.OK, c.Leader().Do("SET", "k", string(make([]byte, 100<<10))))
		}
		time.Sleep(time.Second)
		for _, n := range c.Nodes() {
			require.Len(t, events[replica.SnapshotTaken](n), 1)
		}
	})
}

// TestLogIsBoundedByBytes: the bytes of the entries that stay in the log are bounded, also over restarts, even if the
// limit of their number allows more.
func TestLogIsBoundedByBytes(t *testing.T) {
	const value = 10 << 10
	few := func(c *replica.Config) {
		c.SnapshotBytes, c.TrailingBytes = 20*value, 10*value
	}
	inBubble(t, few, func(t *testing.T, c *replicatest.Cluster) {
		for range 3 {
			for range 120 {
				require.Equal(t, protocol.OK, c.Leader().Do("SET", "k", string(make([]byte, value))))
				synctest.Wait() // until the snapshot has ended
			}
			c.Settle()
			require.Greater(t, c.Leader().Replica().LogEntries(), 5)
			for _, n := range c.Nodes() {
				require.NotEmpty(t, events[replica.SnapshotTaken](n))
				require.Less(t, n.Replica().LogEntries(), 40) // up to 20 after the snapshot, 10 before, and small ones
				n.Crash()
				n.Start()
			}
		}
	})
}

// TestLateSnapshotIsNotInstalled: a follower gets a snapshot that is older than its state, as one that comes late or
// twice. The follower keeps its state, and reports success to the leader.
func TestLateSnapshotIsNotInstalled(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		require.Equal(t, protocol.Integer(1), leader.Do("INCR", "n"))
		require.NoError(t, leader.Replica().TakeSnapshot())
		for _, more := range []int64{2, 3} {
			require.Equal(t, protocol.Integer(more), leader.Do("INCR", "n"))
			c.Settle()
			index, hash := follower.Replica().Digest()
			resp, err := leader.Replica().SendSnapshot(follower.Name)
			require.NoError(t, err)
			require.True(t, resp.Success)
			require.Equal(t, leader.Replica().Status().Term, resp.Term)
			require.Empty(t, events[replica.Restored](follower))
			gotIndex, gotHash := follower.Replica().Digest()
			require.Equal(t, index, gotIndex)
			require.Equal(t, hash, gotHash)
		}
		require.Equal(t, protocol.Integer(4), follower.Do("INCR", "n"))
		c.Settle()
	})
}

// away isolates a follower until its leader's log is truncated, and reconnects it over a path that loses large packets.
func away(t *testing.T, c *replicatest.Cluster) (leader, behind *replicatest.Node) {
	leader, behind = c.Leader(), c.Followers()[0]
	c.Net.Isolate(behind.Name)
	for i := range 200 {
		require.Equal(t, protocol.OK, leader.Do("SET", fmt.Sprint("k", i), "a value that fills a packet"))
		time.Sleep(20 * time.Millisecond)
	}
	c.Net.LoseAbove(leader.Name, behind.Name, 600)
	c.Net.Rejoin(behind.Name)
	time.Sleep(time.Second)
	require.Empty(t, events[replica.Restored](behind))
	return leader, behind
}

// TestSnapshotThatDoesNotComeOnHoldsNoVote: a node votes even while a snapshot that is sent to it makes no progress. If
// the leader is lost meanwhile, the others elect another.
func TestSnapshotThatDoesNotComeOnHoldsNoVote(t *testing.T) {
	inBubble(t, shortLog, func(t *testing.T, c *replicatest.Cluster) {
		leader, behind := away(t, c)
		c.Net.Isolate(leader.Name)
		begun := time.Now()
		require.Equal(t, protocol.OK, behind.Do("SET", "k", "v"))
		require.Less(t, time.Since(begun), 5*time.Second)
		c.Net.Heal()
		c.Settle()
	})
}

// TestSnapshotComesInSmallPackets: a snapshot that has made no progress is sent again in small packets.
func TestSnapshotComesInSmallPackets(t *testing.T) {
	inBubble(t, shortLog, func(t *testing.T, c *replicatest.Cluster) {
		_, behind := away(t, c)
		time.Sleep(4 * time.Second)
		require.NotEmpty(t, events[replica.Restored](behind))
		c.Settle()
	})
}

// sessionClient is a connection that may get sessions. It records the calls of its methods.
type sessionClient struct {
	lease time.Duration
	posts int
	cut   string
}

func (c *sessionClient) SetLease(shortest time.Duration) { c.lease = shortest }
func (*sessionClient) Heard() time.Time                  { return time.Now() }
func (c *sessionClient) Post(*push.Message)              { c.posts++ }
func (c *sessionClient) Cut(why string)                  { c.cut = why }

// open has a client of n open a session that ends with its connection, and acquire a lock. It returns the session's ID.
func open(t *testing.T, n *replicatest.Node, conn int, client *sessionClient) string {
	n.Replica().Clients().Renewer.Enter(int64(conn), client)
	opened := n.Do(words("lock-command %d 0 2000 session.open px 5000 connection", conn)...)
	require.Equal(t, protocol.KindInteger, opened.Kind, opened)
	session := fmt.Sprint(opened.Num)
	require.Equal(t, protocol.KindInteger, n.Do(words("lock-command %d 0 2000 lock.acquire k%d me session %s", conn, conn,
		session)...).Kind)
	synctest.Wait()
	require.Equal(t, 1, n.Replica().Clients().Renewer.Sessions(int64(conn)))
	return session
}

// TestSessions: on any node, a session lives as long as its connection. If it is closed through another node, its
// client is notified at once.
func TestSessions(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		for i, n := range c.Nodes() {
			closed, lost := &sessionClient{}, &sessionClient{}
			first, second := open(t, n, 1, closed), open(t, n, 2, lost)
			require.Equal(t, 5*time.Second, lost.lease)
			time.Sleep(time.Minute)
			other := c.Nodes()[(i+1)%3]
			require.False(t, other.Do("session.info", first).IsNull())
			n.Replica().Clients().Renewer.Leave(1, true)
			time.Sleep(time.Second)
			require.True(t, other.Do("session.info", first).IsNull())
			require.False(t, other.Do("session.info", second).IsNull())
			require.Equal(t, protocol.Integer(1), other.Do("session.close", second))
			time.Sleep(2 * time.Millisecond) // n is notified of commits
			synctest.Wait()
			require.Equal(t, 1, lost.posts)
			require.Zero(t, n.Replica().Clients().Renewer.Sessions(2))
			require.Empty(t, lost.cut)
			n.Replica().Clients().Renewer.Leave(2, true)
		}
	})
}

// TestSnapshotSwallowsEvents: a client's wait and another's session end in entries that their node gets as a snapshot.
// Both clients are notified.
func TestSnapshotSwallowsEvents(t *testing.T) {
	inBubble(t, shortLog, func(t *testing.T, c *replicatest.Cluster) {
		leader, behind := c.Leader(), c.Followers()[0]
		client := &sessionClient{}
		session, replies := open(t, behind, 1, client), park(t, behind)
		c.Net.Isolate(behind.Name)
		require.Equal(t, protocol.Integer(1), leader.Do("RPUSH", "q", "x"))
		require.Equal(t, protocol.Integer(1), leader.Do("session.close", session))
		for i := range 150 {
			require.Equal(t, protocol.OK, leader.Do("SET", fmt.Sprint("k", i), "v"))
			time.Sleep(20 * time.Millisecond)
		}
		require.Empty(t, replies)
		leader.Crash() // otherwise it sends the entry itself, as it has tried to
		c.Net.Heal()
		time.Sleep(2 * time.Second)
		require.NotEmpty(t, events[replica.Restored](behind))
		require.Len(t, replies, 1)
		require.Equal(t, protocol.ErrUncertain.Value(), <-replies)
		require.Equal(t, 1, client.posts)
		require.Zero(t, behind.Replica().Clients().Renewer.Sessions(1))
	})
}

// TestSlowSnapshotIsTheLastOne: a member takes longer to receive a snapshot than the leader takes for the next one.
// Under load, the member receives one snapshot, and then follows the log.
func TestSlowSnapshotIsTheLastOne(t *testing.T) {
	inBubble(t, shortLog, func(t *testing.T, c *replicatest.Cluster) {
		leader, behind := c.Leader(), c.Followers()[0]
		behind.Crash()
		c.Fill(30)
		require.NoError(t, leader.Replica().TakeSnapshot())
		for _, n := range c.Names(behind.Name) {
			c.Net.Delay(n, behind.Name, 50*time.Millisecond)
			c.Net.Delay(behind.Name, n, 50*time.Millisecond)
		}
		behind.Start()
		for range 200 {
			c.Fill(6)
			require.NoError(t, leader.Replica().TakeSnapshot())
			time.Sleep(20 * time.Millisecond)
		}
		require.Len(t, events[replica.Restored](behind), 1)
		c.Settle()
	})
}
