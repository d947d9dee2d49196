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

// shortLog makes a follower that was away need a snapshot.
func shortLog(c *replica.Config) {
	patience(c)
	c.SnapshotPolicy = replica.SnapshotPolicy{SnapshotThreshold: 20, SnapshotInterval: time.Second, TrailingLogs: 4}
}

// A follower forwarded a write, was cut off, and comes back to a snapshot in
// which the write is: no node knows its reply any more, and it took effect once.
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
		leader.Crash() // it would send again what it tried to send all the time: the entry itself
		c.Net.Heal()
		require.Equal(t, protocol.ErrUncertain.Value(), <-reply)
		require.NotEmpty(t, events[replica.Restored](follower))
		require.Equal(t, protocol.Integer(3), follower.Do("INCR", "n"))
		c.Settle()
	})
}

// A node that starts from a snapshot goes on where it was.
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

// Entries that are large rather than many cut the log, too.
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

// What stays of the log is bounded by bytes, over restarts too, while the count allows more.
func TestLogIsBoundedByBytes(t *testing.T) {
	const value = 10 << 10
	few := func(c *replica.Config) {
		c.SnapshotBytes, c.TrailingBytes = 20*value, 10*value
	}
	inBubble(t, few, func(t *testing.T, c *replicatest.Cluster) {
		for range 3 {
			for range 120 {
				require.Equal(t, protocol.OK, c.Leader().Do("SET", "k", string(make([]byte, value))))
				synctest.Wait() // a snapshot ends before the next entry
			}
			c.Settle()
			require.Greater(t, c.Leader().Replica().LogEntries(), 5)
			for _, n := range c.Nodes() {
				require.NotEmpty(t, events[replica.SnapshotTaken](n))
				require.Less(t, n.Replica().LogEntries(), 40) // up to 20 since the snapshot, 10 before, and small ones
				n.Crash()
				n.Start()
			}
		}
	})
}

// A snapshot that a follower is past comes late, or twice: the follower's state
// does not go back, and the leader is told what the follower has.
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

// away has a follower be behind the log of the others, and come back over a path that loses what is large.
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

// A node to which a snapshot is sent that does not come on votes all the same: if the leader is lost meanwhile, the
// others elect another.
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

// A snapshot that did not come on is sent again in small packets.
func TestSnapshotComesInSmallPackets(t *testing.T) {
	inBubble(t, shortLog, func(t *testing.T, c *replicatest.Cluster) {
		_, behind := away(t, c)
		time.Sleep(4 * time.Second)
		require.NotEmpty(t, events[replica.Restored](behind))
		c.Settle()
	})
}

// sessionClient is a connection that may get sessions.
type sessionClient struct {
	lease time.Duration
	posts int
	cut   string
}

func (c *sessionClient) SetLease(shortest time.Duration) { c.lease = shortest }
func (*sessionClient) Heard() time.Time                  { return time.Now() }
func (c *sessionClient) Post(*push.Message)              { c.posts++ }
func (c *sessionClient) Cut(why string)                  { c.cut = why }

// open has a client of n open a session that lives with its connection, and acquire a lock; it returns the session.
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

// TestSessions: a session lives as long as its connection, on whichever node; what a client of it loses it is told at
// once.
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
			time.Sleep(2 * time.Millisecond) // n is a subscriber of commits
			synctest.Wait()
			require.Equal(t, 1, lost.posts)
			require.Zero(t, n.Replica().Clients().Renewer.Sessions(2))
			require.Empty(t, lost.cut)
			n.Replica().Clients().Renewer.Leave(2, true)
		}
	})
}

// TestSnapshotSwallowsEvents: clients whose waits and sessions ended in entries that a node got by a snapshot are told.
func TestSnapshotSwallowsEvents(t *testing.T) {
	inBubble(t, shortLog, func(t *testing.T, c *replicatest.Cluster) {
		leader, behind := c.Leader(), c.Followers()[0]
		client := &sessionClient{}
		session, told := open(t, behind, 1, client), park(t, behind)
		c.Net.Isolate(behind.Name)
		require.Equal(t, protocol.Integer(1), leader.Do("RPUSH", "q", "x"))
		require.Equal(t, protocol.Integer(1), leader.Do("session.close", session))
		for i := range 150 {
			require.Equal(t, protocol.OK, leader.Do("SET", fmt.Sprint("k", i), "v"))
			time.Sleep(20 * time.Millisecond)
		}
		require.Empty(t, told)
		leader.Crash() // it would send again what it tried to send all the time: the entry itself
		c.Net.Heal()
		time.Sleep(2 * time.Second)
		require.NotEmpty(t, events[replica.Restored](behind))
		require.Len(t, told, 1)
		require.Equal(t, protocol.ErrUncertain.Value(), <-told)
		require.Equal(t, 1, client.posts)
		require.Zero(t, behind.Replica().Clients().Renewer.Sessions(1))
	})
}

// TestSlowSnapshotIsTheLastOne: a member that takes longer to get a snapshot than the leader to take the next has one,
// and goes on from the log, while there is work.
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
