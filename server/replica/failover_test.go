package replica_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/push"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/store"
)

// TestReplyComesFromTheOwnLog: a leader commits a follower's write, and dies before the follower gets the reply. The
// follower gets the entry from the next leader, and replies to its client from its own log.
func TestReplyComesFromTheOwnLog(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		follower, other := c.Followers()[0], c.Followers()[1]
		require.Equal(t, protocol.Integer(1), follower.Do("INCR", "n"))
		c.Net.Cut(leader.Name, follower.Name) // the follower gets neither the reply nor the entry

		reply := later(follower, "INCR", "n")
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, protocol.Bulk("2"), other.Do("GET", "n"))
		require.Empty(t, reply)
		leader.Crash()
		c.Net.Heal()

		require.Equal(t, protocol.Integer(2), <-reply)
		require.Equal(t, protocol.Bulk("2"), follower.Do("GET", "n"))
	})
}

// TestWriteMovesToTheNextLeader: a follower forwards a write to a leader whose own packets reach no node. The follower
// passes the write to the next leader. It is applied once, even after the former leader returns.
func TestWriteMovesToTheNextLeader(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		old := c.Leader()
		follower := c.Followers()[0]
		require.Equal(t, protocol.Integer(1), follower.Do("INCR", "n"))
		// The leader still receives requests. Its own packets reach no node.
		for _, n := range c.Followers() {
			c.Net.Cut(old.Name, n.Name)
		}
		require.Equal(t, protocol.Integer(2), follower.Do("INCR", "n"))
		require.NotEqual(t, old.Name, follower.Replica().Status().Leader.Name)

		c.Net.Heal()
		require.Equal(t, protocol.Integer(3), old.Do("INCR", "n"))
		c.Settle()
	})
}

// TestWriteBehindAnUnansweredOne: a follower's packets to the leader are lost, and the leader's packets arrive. The
// first write gets no answer, and writes that follow at once are sent, too. Later writes stay on the follower, and
// their clients get the error that nothing was applied.
func TestWriteBehindAnUnansweredOne(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		require.Equal(t, protocol.Integer(1), follower.Do("INCR", "n"))
		c.Net.Cut(follower.Name, leader.Name)
		first := later(follower, "INCR", "n")
		time.Sleep(replica.DefaultCommandTimeout / 8)
		soon := later(follower, "INCR", "n")
		time.Sleep(replica.DefaultCommandTimeout / 4)
		late := later(follower, "INCR", "n")
		require.Equal(t, protocol.ErrUncertain.Value(), <-first)
		require.Equal(t, protocol.ErrUncertain.Value(), <-soon)
		require.Equal(t, protocol.ErrNoLeader.Value(), <-late)
	})
}

// TestWriteOfACutOffLeaderIsUncertain: a leader without a majority answers a write, after the command timeout, with the
// error that its outcome is unknown.
func TestWriteOfACutOffLeaderIsUncertain(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		old := c.Leader()
		c.Net.Isolate(old.Name)
		start := time.Now()
		require.Equal(t, protocol.ErrUncertain.Value(), old.Do("INCR", "n"))
		require.InDelta(t, replica.DefaultCommandTimeout.Seconds(), time.Since(start).Seconds(), 0.1)
		require.Equal(t, protocol.Null, c.Leader().Do("GET", "n"))
		c.Net.Heal()
		c.Settle()
		require.Equal(t, protocol.Null, old.Do("GET", "n"), "given up: it must not take effect later")
	})
}

// TestRefusedWithoutALeader: without a leader, a command gets ErrNoLeader after the command timeout. It was surely not
// applied.
func TestRefusedWithoutALeader(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		last := c.Leader()
		for _, n := range c.Followers() {
			n.Crash()
		}
		time.Sleep(time.Second) // until it gives up its leadership
		require.False(t, last.Replica().Status().Leading)
		for _, words := range [][]string{{"INCR", "n"}, {"GET", "n"}} {
			start := time.Now()
			require.Equal(t, protocol.ErrNoLeader.Value(), last.Do(words...))
			require.InDelta(t, replica.DefaultCommandTimeout.Seconds(), time.Since(start).Seconds(), 0.1)
		}
		for _, n := range c.Nodes() {
			if n != last {
				n.Start()
			}
		}
		require.Equal(t, protocol.Null, c.Leader().Do("GET", "n"))
		c.Settle()
	})
}

// TestShutdownUnderLoad: a leader that is shut down transfers its leadership first. Clients of the other nodes get no
// error, only a slower reply.
func TestShutdownUnderLoad(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leaving := c.Leader()
		stay := c.Followers()
		stop := make(chan struct{})
		var clients sync.WaitGroup
		var mu sync.Mutex
		acknowledged := 0
		var slowest time.Duration
		for i := range 8 {
			clients.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
					}
					start := time.Now()
					reply := stay[i%2].Do("INCR", "n")
					require.False(t, reply.IsError(), reply.Str)
					mu.Lock()
					acknowledged++
					slowest = max(slowest, time.Since(start))
					mu.Unlock()
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, leaving.Stop())
		require.NoError(t, leaving.Err())
		time.Sleep(100 * time.Millisecond)
		close(stop)
		clients.Wait()
		require.Less(t, slowest, 200*time.Millisecond)
		require.Equal(t, protocol.Bulk(strconv.Itoa(acknowledged)), c.Leader().Do("GET", "n"))
	})
}

// TestShutdownWithoutAnHeir: if no other voter can lead, the leader logs that it stops while leading.
func TestShutdownWithoutAnHeir(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log protocoltest.Buffer
		c := replicatest.New(t, replicatest.Options{Logs: slog.New(slog.NewTextHandler(&log, nil))})
		leader := c.Leader()
		for _, n := range c.Followers() {
			n.Replica().Quarantine()
		}
		require.ErrorIs(t, leader.Stop(), context.DeadlineExceeded)
		require.Contains(t, log.String(), "stop while leading")
	})
}

// TestShutdownWaitsForReplies: a node that is shut down first answers the commands in flight.
func TestShutdownWaitsForReplies(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		follower := c.Followers()[0]
		defer slowDisks(c)()
		reply := later(follower, "INCR", "n")
		time.Sleep(time.Millisecond)
		require.NoError(t, follower.Stop())
		require.Equal(t, protocol.Integer(1), <-reply)
	})
}

// TestShutdownTakesWaitersAlong: clients that leave during a shutdown are removed from the queues of their keys before
// the node ends.
func TestShutdownTakesWaitersAlong(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		follower, other := c.Followers()[0], c.Followers()[1]
		park(t, follower)
		follower.Replica().Clients().Waiters.LeaveAll(protocol.ErrStopping.Value())
		require.NoError(t, follower.Stop())
		require.Equal(t, protocol.Integer(1), other.Do("RPUSH", "q", "x"))
		require.Equal(t, protocol.Integer(1), other.Do("LLEN", "q"))
	})
}

// TestAllNodesRestart: after all nodes have crashed and restarted, acknowledged writes are there, and the time without
// a leader has shortened no lease.
func TestAllNodesRestart(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		require.Equal(t, protocol.OK, c.Leader().Do("SET", "k", "v", "PX", "60000"))
		require.Equal(t, protocol.Integer(1), c.Leader().Do("INCR", "n"))
		for _, n := range c.Nodes() {
			n.Crash()
		}
		time.Sleep(time.Hour) // cluster time stands still: no node leads
		for _, n := range c.Nodes() {
			n.Start()
		}
		require.Equal(t, protocol.Bulk("v"), c.Leader().Do("GET", "k"))
		ttl := c.Leader().Do("PTTL", "k").Num
		require.Greater(t, ttl, int64(58_000))
		require.Equal(t, protocol.Integer(2), c.Followers()[0].Do("INCR", "n"))
		c.Settle()
	})
}

// TestReturningFollowerIsServedAtOnce: a follower that was down for long gets the log at once when it returns. Raft
// alone would wait for seconds between two attempts.
func TestReturningFollowerIsServedAtOnce(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		away := c.Followers()[0]
		away.Crash()
		for range 10 {
			require.Equal(t, protocol.OK, c.Leader().Do("SET", "k", "v"))
			time.Sleep(time.Minute)
		}
		away.Start()
		time.Sleep(500 * time.Millisecond)
		require.Equal(t, c.Leader().Replica().Status().LastLog, away.Replica().Status().Applied)
		// The follower is now needed for the majority.
		for _, n := range c.Followers() {
			if n != away {
				n.Crash()
			}
		}
		require.Equal(t, protocol.OK, away.Do("SET", "k", "w"))
	})
}

// TestFollowerIsBackSoonAfterALoss: a follower whose packets were lost serves clients within two seconds after the
// network recovers. TCP sends lost packets again only after up to the duration of the loss, so a connection with
// requests in flight would keep the follower out for that time.
func TestFollowerIsBackSoonAfterALoss(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		for _, seconds := range []time.Duration{1, 4, 7, 11, 15, 19, 24, 30} {
			c.Net.ResendAsTCP()
			loss, away := seconds*time.Second, c.Followers()[0]
			c.Net.Isolate(away.Name)
			time.Sleep(loss)
			require.Equal(t, protocol.OK, c.Leader().Do("SET", "k", loss.String()))
			c.Net.Heal()
			healed := time.Now()
			require.Equal(t, protocol.Bulk(loss.String()), away.Do("GET", "k"), "after %v", loss)
			require.Less(t, time.Since(healed), 2*time.Second, "after %v", loss)
			c.Settle()
		}
	})
}

// TestSilentLeaderIsReplaced: a leader that is cut off, and so closes no connection, is replaced within a second in
// most cases. If this needs the vote of a member in quarantine, it takes half as long again: there is one candidate
// instead of two. In one of two thousand cases that candidate starts its second election only after the time of a
// command.
func TestSilentLeaderIsReplaced(t *testing.T) {
	for quarantine, limit := range map[bool]time.Duration{false: time.Second, true: 1500 * time.Millisecond} {
		t.Run(fmt.Sprint("quarantine=", quarantine), func(t *testing.T) {
			inBubble(t, patience, func(t *testing.T, c *replicatest.Cluster) {
				good := c.Nodes()
				if quarantine {
					c.Lead(good[0])
					good[2].Replica().Quarantine()
					good = good[:2]
				}
				var all []time.Duration
				for range 21 {
					old := c.Leader()
					require.Equal(t, protocol.OK, old.Do("SET", "k", "v"))
					synctest.Wait() // a node without the entry is not elected
					client := slices.DeleteFunc(slices.Clone(good), func(n *replicatest.Node) bool { return n == old })[0]
					start := time.Now()
					c.Net.Isolate(old.Name)
					require.Equal(t, protocol.OK, client.Do("SET", "k", "w"))
					all = append(all, time.Since(start))
					c.Net.Heal()
					c.Settle(good...)
				}
				require.Less(t, median(all), limit)
			})
		})
	}
}

func median(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/2]
}

// TestHungDisk: a leader whose disk hangs keeps its leadership, since raft's heartbeats continue. No command is lost:
// after the leader's process has ended, as the watchdog would end it, the next leader answers.
func TestHungDisk(t *testing.T) {
	inBubble(t, patience, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		require.Equal(t, protocol.Integer(1), follower.Do("INCR", "n"))
		leader.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Hang: true})
		reply := later(follower, "INCR", "n")
		time.Sleep(5 * time.Second)
		require.Empty(t, reply)
		require.Error(t, leader.Replica().Healthy())
		require.Len(t, events[replica.ProposalStalled](leader), 1)
		time.Sleep(5 * time.Second)
		stalled := events[replica.ProposalStalled](leader)
		require.Len(t, stalled, 2)
		require.Less(t, stalled[1].Committed, stalled[1].LastLog)
		for _, m := range stalled[1].Members {
			require.Equal(t, stalled[1].LastLog, m.LogIndex, "the disk of %s does not hang, or the entry is in memory", m.Name)
		}
		leader.Crash()
		require.Equal(t, protocol.Integer(2), <-reply)
	})
}

// cutNote is a connection that passes on the reason for which it is cut.
type cutNote struct{ cut chan string }

func (cutNote) SetLease(time.Duration) {}
func (cutNote) Heard() time.Time       { return time.Now() }
func (cutNote) Post(*push.Message)     {}
func (n cutNote) Cut(why string)       { n.cut <- why }

// TestSessionAttachedOverAHungDisk: a session's lease begins at the stamp of the entry that attaches the session. If
// the leader's disk hangs, the lease may have expired when the reply arrives. Then the connection is closed at once, so
// that its client does not rely on the session.
func TestSessionAttachedOverAHungDisk(t *testing.T) {
	inBubble(t, patience, func(t *testing.T, c *replicatest.Cluster) {
		const conn = 7
		leader := c.Leader()
		require.Equal(t, protocol.Integer(1), leader.Do("SESSION.OPEN", "PX", "2000"))
		require.Equal(t, protocol.Integer(1), leader.Do("LOCK.ACQUIRE", "k", "me", "SESSION", "1"))
		clear := leader.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Hang: true})
		client := cutNote{make(chan string, 1)}
		renewer := leader.Replica().Clients().Renewer
		renewer.Enter(conn, client)
		began := time.Now()
		renewer.Ask(conn, began)
		attach := &replica.Batch{Count: 1, Write: true}
		attach.Body = protocol.AppendRequest(nil, protocol.Head{Lock: true, Conn: conn}, "session.attach", [][]byte{[]byte("1")})
		done := make(chan error, 1)
		go func() { done <- leader.Replica().Execute(attach) }()
		time.Sleep(3 * time.Second)
		require.Empty(t, done)
		clear()
		require.NoError(t, <-done)
		renewer.Expect(conn, 0, attach.Number, began)
		require.Equal(t, []protocol.Value{protocol.Integer(1)}, attach.Replies)
		require.Equal(t, protocol.Null, leader.Do("LOCK.CHECK", "k", "me"))
		synctest.Wait()
		require.Len(t, client.cut, 1)
		renewer.Leave(conn, true)
		c.Settle()
	})
}

// TestFailedAppendsDoNotWedgeAFollower: a follower whose disk has failed some appends catches up. Raft's own pipeline
// would not recover, and is off.
func TestFailedAppendsDoNotWedgeAFollower(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		for range 20 {
			follower.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Delay: 20 * time.Millisecond, Err: syscall.EIO, Count: 1})
			for range 5 {
				require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
			}
		}
		c.Settle()
	})
}

// TestElectionAfterARestart: a candidate gets the vote of a node that has restarted, although raft still has
// connections to the node's former process. The election takes less than 200 ms.
func TestElectionAfterARestart(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		first, candidate, restarted := c.Node("n1"), c.Node("n2"), c.Node("n3")
		for range 5 {
			lead(t, c, candidate) // so that it has connections to both
			lead(t, c, first)
			restarted.Crash()
			restarted.Start()
			c.Settle()
			time.Sleep(time.Second)
			start := time.Now()
			first.Crash()
			require.Equal(t, protocol.OK, candidate.Do("SET", "k", "v"))
			require.Less(t, time.Since(start), 200*time.Millisecond)
			require.Equal(t, candidate, c.Leader())
			first.Start()
			c.Settle()
		}
	})
}

// TestAllNodesShutDown: all nodes shut down at the same time without an error, although the last one has no node to
// transfer the leadership to.
func TestAllNodesShutDown(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		require.Equal(t, protocol.OK, c.Leader().Do("SET", "k", "v"))
		var stops sync.WaitGroup
		for _, n := range c.Nodes() {
			stops.Go(func() {
				if err := n.Stop(); err != nil {
					t.Error(n.Name, err)
				}
			})
		}
		stops.Wait()
		for _, n := range c.Nodes() {
			require.NoError(t, n.Err())
			n.Start()
		}
		require.Equal(t, protocol.Bulk("v"), c.Leader().Do("GET", "k"))
	})
}

// TestReplyWaitsForTheLeadersDisk: no reply is sent before the leader's own disk has the entry. The leader's disk and
// the followers' disks write at the same time.
func TestReplyWaitsForTheLeadersDisk(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		const slow = 100 * time.Millisecond
		leader := c.Leader()
		took := func() time.Duration {
			start := time.Now()
			require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
			return time.Since(start)
		}
		leader.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Delay: slow})
		require.GreaterOrEqual(t, took(), slow)
		for _, n := range c.Followers() {
			n.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Delay: slow})
		}
		took() // a follower may still be writing the entry before
		require.Less(t, took(), 2*slow)
	})
}

// TestLeadershipWonAgainUnseen: a node may lose and win the leadership between two updates. The later term is another
// leadership: its waiting batches are proposed again at once.
func TestLeadershipWonAgainUnseen(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
		leader.Replica().ServeFormerTerm()
		start := time.Now()
		require.Equal(t, protocol.Integer(1), leader.Do("INCR", "n"))
		require.Less(t, time.Since(start), 100*time.Millisecond)
		require.Len(t, events[replica.LeadershipGained](leader), 2)
	})
}

// TestServesAnew: a leader that serves anew, as after raft has refused an entry, passes all waiting batches to raft
// again in the same term. It accepts forwarded batches as before.
func TestServesAnew(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		term := leader.Replica().Status().Term
		for i := range int64(3) {
			require.Equal(t, protocol.Integer(2*i+1), follower.Do("INCR", "n"))
			replies := later(follower, "INCR", "n")
			leader.Replica().ServeAnew()
			require.Equal(t, protocol.Integer(2*i+2), <-replies)
			require.Equal(t, protocol.Bulk(strconv.FormatInt(2*i+2, 10)), leader.Do("GET", "n"))
			time.Sleep(time.Second) // the reply may arrive before the leader serves anew
			require.Len(t, events[replica.LeadershipLost](leader), int(i)+1)
			require.Len(t, events[replica.LeadershipGained](leader), int(i)+2)
		}
		_, down := links(follower)
		require.Equal(t, 3, down, "what its link has brought is sent again")
		require.NoError(t, leader.Replica().Release()) // this makes the leader read raft's state
		time.Sleep(time.Second)
		require.Len(t, events[replica.LeadershipLost](leader), 3, "nothing has")
		require.Len(t, events[replica.LeadershipGained](leader), 4)
		require.Equal(t, term, leader.Replica().Status().Term)
	})
}

// TestLeadershipEndsBeforeItServes: a leader has not committed its first entry. When it is deposed or put into
// quarantine, it accepts no more batches from followers.
func TestLeadershipEndsBeforeItServes(t *testing.T) {
	for name, end := range map[string]func(c *replicatest.Cluster, n *replicatest.Node){
		"deposed": func(c *replicatest.Cluster, n *replicatest.Node) {
			c.Net.Isolate(n.Name)
			time.Sleep(time.Second)
		},
		"quarantine": func(c *replicatest.Cluster, n *replicatest.Node) {
			n.Replica().Quarantine()
			synctest.Wait() // no other leader is elected yet
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
				first, next, other := c.Leader(), c.Followers()[0], c.Followers()[1]
				var undo []func()
				for _, n := range []*replicatest.Node{first, other} {
					undo = append(undo, n.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Hang: true}))
				}
				require.NoError(t, first.Replica().TransferLeadership(t.Context(), next.ID))
				time.Sleep(100 * time.Millisecond)
				require.True(t, next.Replica().Serves(other.Replica()))
				last := next.Replica().Status().LastLog
				time.Sleep(time.Second)
				require.Equal(t, last, next.Replica().Status().LastLog, "one first entry is enough, however long it takes")
				end(c, next)
				require.False(t, next.Replica().Serves(other.Replica()))
				require.Empty(t, events[replica.LeadershipGained](next))
				for _, clear := range undo {
					clear()
				}
				c.Net.Heal()
				c.Settle(first, other)
			})
		})
	}
}

// TestNoNodeFollowsItself: raft may name a node as the leader before or after it reports the leadership to that node.
// The node then follows nobody.
func TestNoNodeFollowsItself(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		synctest.Wait()
		leader.Replica().Follow()
		time.Sleep(time.Second)
		changes := events[replica.LeaderChanged](leader)
		require.Empty(t, changes[len(changes)-1].Leader)
		up, _ := links(leader)
		require.Zero(t, up)
	})
}

// TestEveryNodeServes: a command has the same effect and the same reply on each node.
func TestEveryNodeServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := replicatest.New(t, replicatest.Options{})
		c.Leader()
		for _, n := range c.Nodes() {
			require.Equal(t, protocol.OK, n.Do("SET", "k", n.Name))
			for _, other := range c.Nodes() {
				require.Equal(t, protocol.Bulk(n.Name), other.Do("GET", "k"))
			}
		}
		c.Settle()
	})
}

func TestCommandsSurviveTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := replicatest.New(t, replicatest.Options{})
		leader := c.Leader()
		require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
		start := time.Now()
		leader.Crash()
		next := c.Leader()
		require.Equal(t, protocol.Bulk("v"), next.Do("GET", "k"))
		t.Logf("served again after %v", time.Since(start))
		gained := events[replica.LeadershipGained](next)
		require.Less(t, gained[len(gained)-1].Took, 10*time.Millisecond, "it serves when its first entry is applied")
	})
}
