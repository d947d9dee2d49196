package replica_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/store"
)

// heavy is a script that increments a key, and uses most of an entry's budget.
const heavy = "local n = redis.call('incr',KEYS[1]) for i=1,4000000 do end return n"

// TestHeavyPipelinesHoldUpNobody: clients send pipelines of heavy scripts to the leader and to a follower. They do not
// delay a client with ordinary commands, whose batch goes into the next entry or the one after it. The pipelines are
// applied over several entries, each command once and in order.
func TestHeavyPipelinesHoldUpNobody(t *testing.T) {
	inBubble(t, patience, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		slow(c)
		const scripts = 3
		type outcome struct {
			replies []protocol.Value
			err     error
		}
		hostile := make(map[string]chan outcome)
		for name, n := range map[string]*replicatest.Node{"h1": leader, "h2": follower, "h3": follower} {
			commands := [][]string{{"SET", name, "0"}}
			for range scripts {
				commands = append(commands, []string{"EVAL", heavy, "1", name}, []string{"GET", name})
			}
			ended := make(chan outcome, 1)
			hostile[name] = ended
			go func() {
				replies, err := n.Execute(append(commands, []string{"APPEND", name, "."})...)
				ended <- outcome{replies, err}
			}()
		}
		release := "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
		before := leader.Replica().Status().Applied
		most := uint64(0)
		for i := range 40 {
			n := []*replicatest.Node{leader, follower}[i%2]
			token := strconv.Itoa(i)
			last := leader.Replica().Status().LastLog
			replies, err := n.Execute([]string{"SET", "lock", token, "NX", "PX", "30000"}, []string{
				"EVAL", release, "1",
				"lock", token,
			}, []string{"GET", "lock"})
			require.NoError(t, err)
			require.Equal(t, []protocol.Value{protocol.OK, protocol.Integer(1), protocol.Null}, replies)
			most = max(most, leader.Replica().Status().Applied-last)
		}
		require.LessOrEqual(t, most, uint64(3), "entries until an ordinary command is answered")
		for name, ended := range hostile {
			o := <-ended
			require.NoError(t, o.err)
			want := []protocol.Value{protocol.OK}
			for i := int64(1); i <= scripts; i++ {
				want = append(want, protocol.Integer(i), protocol.Bulk(strconv.FormatInt(i, 10)))
			}
			require.Equal(t, append(want, protocol.Integer(2)), o.replies, name)
		}
		require.Greater(t, leader.Replica().Status().Applied-before, uint64(3*scripts), "an entry has room for one")
		c.Settle()
	})
}

// TestRestSurvivesTheLeader: the leader dies while a pipeline is applied over several entries. The rest is applied
// under the next leader, and no command is applied twice.
func TestRestSurvivesTheLeader(t *testing.T) {
	inBubble(t, patience, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		ended := make(chan []protocol.Value, 1)
		go func() {
			replies, err := follower.Execute([]string{"EVAL", heavy, "1", "n"}, []string{"EVAL", heavy, "1", "n"},
				[]string{"EVAL", heavy, "1", "n"})
			require.NoError(t, err)
			ended <- replies
		}()
		for follower.Do("EXISTS", "n").Num == 0 {
			continue
		}
		leader.Crash()
		require.Equal(t, []protocol.Value{protocol.Integer(1), protocol.Integer(2), protocol.Integer(3)}, <-ended)
		require.Equal(t, protocol.Bulk("3"), follower.Do("GET", "n"))
	})
}

// TestRestWithoutTime: in the last quarter of a command's time, the rest of a batch is not proposed, since nobody might
// wait for its replies. It gets the error that it was not applied.
func TestRestWithoutTime(t *testing.T) {
	inBubble(t, patience, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		leader.Replica().SlowDown(23 * time.Second)
		replies, err := leader.Execute([]string{"EVAL", heavy, "1", "n"}, []string{"EVAL", heavy, "1", "n"})
		require.NoError(t, err)
		require.Equal(t, []protocol.Value{protocol.Integer(1), protocol.ErrNoRoom.Value()}, replies)
	})
}

// TestRunningBatchIsWaitedFor: a batch that the state machine is running gets its true reply even after its time limit,
// on the leader and through a follower. A batch behind it times out as usual.
func TestRunningBatchIsWaitedFor(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		const run = 2 * replica.DefaultCommandTimeout
		for _, n := range c.Nodes() {
			n.Replica().SlowDownBatches(run)
		}
		for i, n := range []*replicatest.Node{leader, follower} {
			began := time.Now()
			reply := later(n, "INCR", "n")
			time.Sleep(replica.DefaultCommandTimeout / 4)
			behind := later(n, "INCR", "behind")
			require.Contains(t, []protocol.Value{protocol.ErrUncertain.Value(), protocol.ErrNoLeader.Value()}, <-behind)
			require.Less(t, time.Since(began), run)
			require.Equal(t, protocol.Integer(int64(i+1)), <-reply)
			require.GreaterOrEqual(t, time.Since(began), run)
			time.Sleep(2 * run)
			synctest.Wait()
		}
	})
}

// TestLargeBatchesHoldUpNobody: large batches, each with an entry of its own, delay no small batch, on the leader or
// through a follower. The small batch goes into the next entry. In the end all large batches are applied.
func TestLargeBatchesHoldUpNobody(t *testing.T) {
	// The entry in flight, the entry of the small batch, and an entry of large ones that may be applied before the test
	// reads the index.
	const most = 3
	for _, size := range []int{900_000, 2_000_000} {
		inBubble(t, patience, func(t *testing.T, c *replicatest.Cluster) {
			leader, follower := c.Leader(), c.Followers()[0]
			slow(c)
			value := strings.Repeat("x", size)
			var large []<-chan protocol.Value
			for i := range 25 {
				for _, n := range []*replicatest.Node{leader, follower} {
					large = append(large, later(n, "APPEND", n.Name+strconv.Itoa(i), value))
				}
			}
			time.Sleep(time.Millisecond)
			for _, n := range []*replicatest.Node{leader, follower} {
				last := leader.Replica().Status().LastLog
				for range 3 {
					require.Equal(t, protocol.OK, n.Do("SET", "lock", "token"))
					applied := leader.Replica().Status().Applied
					require.LessOrEqual(t, applied-last, uint64(most), "entries until a small batch is answered")
					last = leader.Replica().Status().LastLog
				}
			}
			unanswered := slices.ContainsFunc(large, func(reply <-chan protocol.Value) bool { return len(reply) == 0 })
			require.True(t, unanswered, "large ones still wait")
			for _, reply := range large {
				require.Equal(t, protocol.Integer(int64(size)), <-reply)
			}
		})
	}
}

// TestHeavyReadThatFailsGivesItsTurnBack: a long read gets its turn after its node has lost the leadership. It releases
// the turn, and the next leader answers it.
func TestHeavyReadThatFailsGivesItsTurnBack(t *testing.T) {
	inBubble(t, patience, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Node("n1")
		lead(t, c, leader)
		read := func() <-chan []protocol.Value {
			ended := make(chan []protocol.Value, 1)
			u := replicatest.Batch([]string{"EVAL_RO", "for i=1,1000000 do end return 1", "0"})
			u.Write = false
			go func() {
				require.NoError(t, leader.Replica().Execute(u))
				ended <- u.Replies
			}()
			return ended
		}
		leader.Replica().HoldTurn()
		first := read()
		synctest.Wait()
		require.NoError(t, leader.Replica().TransferLeadership(t.Context(), ""))
		leader.Replica().LetTurn()
		require.Equal(t, []protocol.Value{protocol.Integer(1)}, <-first, "the next leader's answer")
		lead(t, c, leader)
		require.Equal(t, []protocol.Value{protocol.Integer(1)}, <-read())
	})
}

// TestHeavyReads: reads that take long take turns, on the leader and through a follower. Other reads do not wait for
// them.
func TestHeavyReads(t *testing.T) {
	inBubble(t, patience, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
		commands := [][]string{
			{"EVAL_RO", "for i=1,1000000 do end return 1", "0"},
			{"GET", "k"},
			{"EVAL_RO", "for i=1,1000000 do end return 2", "0"},
			{"GET", "k"},
		}
		want := []protocol.Value{protocol.Integer(1), protocol.Bulk("v"), protocol.Integer(2), protocol.Bulk("v")}
		read := func(n *replicatest.Node, count int) <-chan []protocol.Value {
			ended := make(chan []protocol.Value, 1)
			u := replicatest.Batch(commands[:count]...)
			u.Write = false
			go func() {
				require.NoError(t, n.Replica().Execute(u))
				ended <- u.Replies
			}()
			return ended
		}
		for _, n := range []*replicatest.Node{leader, follower} {
			leader.Replica().HoldTurn()
			heavies := []<-chan []protocol.Value{read(n, 4), read(n, 1), read(leader, 1)}
			synctest.Wait()
			require.Equal(t, protocol.Bulk("v"), n.Do("GET", "k"), "it does not wait")
			for _, h := range heavies {
				require.Empty(t, h, "its turn has not come")
			}
			leader.Replica().LetTurn()
			for _, h := range heavies {
				replies := <-h
				require.Equal(t, want[:len(replies)], replies)
			}
		}
	})
}

// heavyReads returns a batch with the same read n times.
func heavyReads(n int, words ...string) *replica.Batch {
	commands := make([][]string, n)
	for i := range commands {
		commands[i] = words
	}
	u := replicatest.Batch(commands...)
	u.Write = false
	return u
}

// TestRepliesOfHeavyReadsAreBounded: a pipeline repeats a small request with a large reply. The memory of its replies
// is bounded: the last reads get ErrNoRoom. As a client's node does, the test sends these reads again.
func TestRepliesOfHeavyReadsAreBounded(t *testing.T) {
	const elements, reads, replyBytes = 5000, 100, 8 << 20
	inBubble(t, func(c *replica.Config) { c.Limits.ReplyBytes = replyBytes }, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		push := append([]string{"RPUSH", "l"}, make([]string, elements)...)
		require.Equal(t, protocol.Integer(elements), leader.Do(push...))
		for _, n := range []*replicatest.Node{leader, follower} {
			for left, rounds := reads, 0; left > 0; rounds++ {
				u := heavyReads(left, "LRANGE", "l", "0", "-1")
				require.NoError(t, n.Replica().Execute(u))
				require.Len(t, u.Replies, left)
				made := 0
				for made < left && !u.Replies[made].IsError() {
					require.Len(t, u.Replies[made].Elems, elements)
					made++
				}
				require.Positive(t, made)
				for _, reply := range u.Replies[made:] {
					require.Equal(t, protocol.ErrNoRoom.Value(), reply)
				}
				require.Less(t, protocol.MemoryWithin(u.Replies, 1<<30), replyBytes*3, "a turn more than a quarter, at most")
				require.Less(t, rounds, reads/2, "reads share rounds")
				left -= made
			}
		}
	})
}

// TestHeavyReadWithoutATurn: a read that gets no turn in time returns ErrNoRoom, also through a follower: there is a
// leader, and it answers.
func TestHeavyReadWithoutATurn(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, follower := c.Leader(), c.Followers()[0]
		leader.Replica().HoldTurn()
		defer leader.Replica().LetTurn()
		for _, n := range []*replicatest.Node{leader, follower} {
			u := heavyReads(1, "EVAL_RO", "for i=1,1000000 do end return 1", "0")
			require.NoError(t, n.Replica().Execute(u))
			require.Equal(t, []protocol.Value{protocol.ErrNoRoom.Value()}, u.Replies)
		}
	})
}

// TestReadsBesideABacklog: the leases of many locks have ended together, and each entry removes only some of them. A
// read of one of these locks waits for few entries, and not for the removal of all: one entry with the time, one that
// may be in flight, and one with the read.
func TestReadsBesideABacklog(t *testing.T) {
	inBubble(t, patience, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		const holds, perEntry = 8000, 512
		for from := range holds / 1000 {
			fill := "for i=1,1000 do redis.call('lock.acquire',ARGV[1]..':'..i,'me','px',ARGV[2]) end return 1"
			left := strconv.Itoa(5000 - 100*from)
			require.Equal(t, protocol.Integer(1), leader.Do("EVAL", fill, "0", strconv.Itoa(from), left))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(4000 * time.Millisecond)
		for _, n := range c.Nodes() {
			n.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Delay: 20 * time.Millisecond})
		}
		time.Sleep(200*time.Millisecond + time.Millisecond)
		before := leader.Replica().Status().Applied
		require.Equal(t, protocol.Integer(0), leader.Do("EXISTS", "7:1000"))
		require.LessOrEqual(t, leader.Replica().Status().Applied-before, uint64(holds/perEntry/2))
	})
}
