package replica_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/store"
)

// slowDisks has each append to a log take 50 ms, until fast is called. Meanwhile batches gather for the next entry.
func slowDisks(c *replicatest.Cluster) (fast func()) {
	var clear []func()
	for _, n := range c.Nodes() {
		clear = append(clear, n.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Delay: 50 * time.Millisecond}))
	}
	return func() {
		for _, f := range clear {
			f()
		}
	}
}

// TestReleasedLockIsAcquiredInTheSameEntry: a request for a lock and the lock's release wait for the same entry. The
// request gets the lock even if it came first, through any node.
func TestReleasedLockIsAcquiredInTheSameEntry(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		for _, n := range []*replicatest.Node{leader, c.Followers()[0]} {
			require.Equal(t, protocol.OK, leader.Do("SET", "lock", "a"))
			fast := slowDisks(c)
			before := later(leader, "INCR", "n") // in flight while the others arrive
			time.Sleep(20 * time.Millisecond)
			acquired := later(n, "SET", "lock", "b", "NX")
			time.Sleep(20 * time.Millisecond)
			require.Equal(t, protocol.Integer(1), leader.Do("DEL", "lock"))
			require.Equal(t, protocol.OK, <-acquired)
			<-before
			fast()
		}
	})
}

// TestRefusedPollsAreDelayed: right after a useful entry, a poll for a held lock waits for the next useful batch, at
// most a millisecond. In an idle cluster it is refused at once.
func TestRefusedPollsAreDelayed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		lastLog := func() uint64 { return leader.Replica().Status().LastLog }
		refused := func() time.Duration {
			start := time.Now()
			require.Equal(t, protocol.Null, leader.Do("SET", "lock", "b", "NX"))
			return time.Since(start)
		}
		require.Equal(t, protocol.OK, leader.Do("SET", "lock", "a"))
		time.Sleep(time.Second)
		require.Zero(t, refused())
		require.Zero(t, refused())

		require.Equal(t, protocol.Integer(1), leader.Do("INCR", "n"))
		before, start := lastLog(), time.Now()
		acquired := later(leader, "SET", "lock", "b", "NX")
		synctest.Wait()
		require.Equal(t, before, lastLog())
		require.Equal(t, protocol.Integer(1), leader.Do("DEL", "lock"))
		require.Equal(t, protocol.OK, <-acquired)
		require.Equal(t, before+1, lastLog())
		require.Zero(t, time.Since(start))

		require.Equal(t, replica.DefaultRefusalDelay, refused())
		require.Zero(t, refused())

		require.Equal(t, protocol.Integer(2), leader.Do("INCR", "n"))
		before, start = lastLog(), time.Now()
		var polls []<-chan protocol.Value
		for _, n := range c.Nodes() {
			polls = append(polls, later(n, "SET", "lock", "c", "NX"))
			time.Sleep(200 * time.Microsecond)
			require.Equal(t, before, lastLog())
		}
		require.Equal(t, protocol.OK, c.Followers()[0].Do("SET", "third", "a", "NX"))
		for _, poll := range polls {
			require.Equal(t, protocol.Null, <-poll)
		}
		require.Equal(t, before+1, lastLog())
		require.Less(t, time.Since(start), replica.DefaultRefusalDelay)
		require.Equal(t, protocol.OK, leader.Do("SET", "other", "a", "NX"), "a lock that is free does not wait")
	})
}

// TestDelayedPollsSurviveTheirLeader: delayed polls are answered even if the leader transfers its leadership meanwhile.
// Their replies are true at that time: if the lock's lease ends while a poll waits, the poll gets the lock.
func TestDelayedPollsSurviveTheirLeader(t *testing.T) {
	slow := func(c *replica.Config) { c.RefusalDelay = 100 * time.Millisecond }
	inBubble(t, slow, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		require.Equal(t, protocol.OK, leader.Do("SET", "lock", "a"))
		require.Equal(t, protocol.OK, leader.Do("SET", "short", "a", "PX", "50"))
		ended := later(leader, "SET", "short", "b", "NX")
		require.Equal(t, protocol.OK, <-ended)

		require.Equal(t, protocol.Integer(1), leader.Do("INCR", "n"))
		var polls []<-chan protocol.Value
		for _, n := range c.Nodes() {
			polls = append(polls, later(n, "SET", "lock", "b", "NX"))
		}
		time.Sleep(time.Millisecond)
		require.NoError(t, leader.Replica().TransferLeadership(t.Context(), ""))
		start := time.Now()
		for _, poll := range polls {
			require.Equal(t, protocol.Null, <-poll)
		}
		require.Less(t, time.Since(start), 200*time.Millisecond)
	})
}

// TestManyAcquiresInOneEntry: each batch of a burst is applied once, even if the burst has more SET NX than an entry
// puts last at a time.
func TestManyAcquiresInOneEntry(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		defer slowDisks(c)()
		before := later(leader, "INCR", "n") // later batches wait for it, and share the next entry
		time.Sleep(time.Millisecond)
		log := leader.Replica().Status().LastLog
		var acquires, counts []<-chan protocol.Value
		for i := range 700 {
			acquires = append(acquires, later(leader, "SET", fmt.Sprint("lock:", i), "a", "NX"))
			counts = append(counts, later(leader, "INCR", "m"))
		}
		for i := range acquires {
			require.Equal(t, protocol.OK, <-acquires[i])
			<-counts[i]
		}
		<-before
		require.Equal(t, log+1, leader.Replica().Status().LastLog)
		require.Equal(t, protocol.Bulk("700"), leader.Do("GET", "m"))
	})
}

// TestWrongHintsOnlyCostTime: with any hints a batch does what its commands say, once, within the delay of refusals.
func TestWrongHintsOnlyCostTime(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader, n := c.Leader(), int64(0)
		large := "return 7 --" + strings.Repeat("x", fsm.LargeSource)
		for _, node := range []*replicatest.Node{leader, c.Followers()[0]} {
			for hints := range protocol.Hints(16) {
				n++
				quietLog(leader)
				start := time.Now()
				for _, commands := range [][][]string{
					{{"INCR", "counted"}},
					{{"SET", "lock", "a", "NX"}},
					{{"SET", "lock", "b", "NX"}, {"GET", "lock"}, {"EVAL", large, "0"}},
					{{"EVAL", large, "0"}},
					{{"wait-for-key", "1", "blpop", "lock", "0"}},
					{{"DEL", "lock"}},
				} {
					b := replicatest.Batch(commands...)
					b.Hints = hints
					require.NoError(t, node.Replica().Execute(b))
					want := map[string][]protocol.Value{
						"INCR": {protocol.Integer(n)}, "SET": {protocol.OK}, "EVAL": {protocol.Integer(7)},
						"wait-for-key": {protocol.ErrWrongType.Value()}, "DEL": {protocol.Integer(1)},
					}[commands[0][0]]
					if len(commands) > 1 {
						want = []protocol.Value{protocol.Null, protocol.Bulk("a"), protocol.Integer(7)}
					}
					require.Equal(t, want, b.Replies, "%v with the hints %b", commands, hints)
				}
				require.LessOrEqual(t, time.Since(start), 6*replica.DefaultRefusalDelay)
			}
		}
	})
}

// TestLargeBodiesAreNotLookedAt: the delay of refusals examines no large body, and so does not delay it.
func TestLargeBodiesAreNotLookedAt(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		leader.Do("SET", "lock", "a")
		for size, most := range map[int]time.Duration{100: replica.DefaultRefusalDelay, 5000: 0} {
			quietLog(leader)
			start := time.Now()
			require.Equal(t, protocol.Null, leader.Do("SET", "lock", strings.Repeat("x", size), "NX"))
			require.Equal(t, most, time.Since(start))
		}
	})
}
