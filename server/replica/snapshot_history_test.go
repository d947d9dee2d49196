package replica_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/store"
)

// loseTail has a node return by a snapshot, mostly, and take an entry that its leader does not survive. Nothing
// else is written meanwhile: the next snapshot would hide where a node cannot go on.
func loseTail(c *replicatest.Cluster, rng *rand.Rand, rec *recorder) {
	n := c.Followers()[0]
	if rng.IntN(4) > 0 {
		n.Crash()
		for i := range rng.IntN(20) {
			rec.do(-1, c.Leader(), input{key: logKey, write: fmt.Sprintf("%d.%d ", rec.now(), i)})
		}
		time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
		n.Start()
		time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
	}
	leader := c.Leader()
	if n == leader {
		return
	}
	for _, other := range c.Nodes() {
		if other != leader && other != n {
			c.Net.Cut(leader.Name, other.Name)
		}
	}
	// Its append fails when its follower has the entry already: it ends.
	leader.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Delay: 50 * time.Millisecond, Err: syscall.EIO, Count: 1})
	rec.do(-1, leader, input{key: logKey, write: fmt.Sprintf("%d ", rec.now())})
	c.Net.Isolate(n.Name)
	leader.Crash()
	leader.Start()
	for _, other := range c.Nodes() {
		c.Net.Mend(leader.Name, other.Name)
	}
	time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
	if rng.IntN(4) == 0 {
		n.Crash()
		n.Start()
	}
	c.Net.Heal()
}

// TestSnapshotHistories is as TestHistories, with a snapshot every few entries, and hardly a log behind it.
func TestSnapshotHistories(t *testing.T) {
	seeds := []uint64{*seedFlag}
	if *seedFlag == 0 {
		seeds = []uint64{rand.Uint64N(1_000_000) + 1}
	}
	for _, nodes := range []int{3, 5} {
		for _, seed := range seeds {
			t.Run(fmt.Sprintf("nodes=%d/seed=%d", nodes, seed), func(t *testing.T) {
				var rec *recorder
				var final string
				synctest.Test(t, func(t *testing.T) { rec = snapshotHistory(t, nodes, seed, &final) })
				rec.check(t, final)
			})
		}
	}
}

func snapshotHistory(t *testing.T, nodes int, seed uint64, final *string) *recorder {
	rng := rand.New(rand.NewPCG(seed, 1<<33))
	c := replicatest.New(t, replicatest.Options{Nodes: nodes, Configure: func(c *replica.Config) {
		c.SnapshotPolicy = replica.SnapshotPolicy{
			SnapshotThreshold: 5, SnapshotInterval: 200 * time.Millisecond,
			TrailingLogs: 1,
		}
	}})
	slow(c)
	rec := newRecorder()
	for round := range uint64(*roundsFlag) {
		stop := make(chan struct{})
		var clients sync.WaitGroup
		for i := range 4 {
			clients.Go(func() { rec.client(int(round)*4+i, rand.New(rand.NewPCG(seed+round<<32, uint64(i))), c.Nodes(), stop) })
		}
		time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
		undo := troubles[rng.IntN(len(troubles))].cause(c, rng)
		time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
		undo()
		slow(c)
		close(stop)
		clients.Wait()
		requireAllFollow(t, c)
		loseTail(c, rng, rec)
		slow(c)
		requireAllFollow(t, c)
	}
	requireAllLead(t, c, rec)
	c.Settle()
	reply := c.Leader().Do("GET", logKey)
	require.False(t, reply.IsError(), reply.Str)
	*final = reply.Str
	return rec
}

// requireAllFollow requires that each node gets, within a few seconds, to what its leader has now.
func requireAllFollow(t *testing.T, c *replicatest.Cluster) {
	t.Helper()
	want := c.Leader().Replica().Status().Committed
	for _, n := range c.Nodes() {
		for i := 0; ; i++ {
			if r := n.Replica(); r != nil && r.Status().Applied >= want {
				break
			}
			require.Less(t, i, 1000, "%s does not follow to %d", n.Name, want)
			time.Sleep(10 * time.Millisecond)
		}
	}
}
