package replica_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/store"
)

var (
	seedFlag   = flag.Uint64("seed", 0, "draw the troubles of TestHistories from this seed only")
	roundsFlag = flag.Int("rounds", 12, "how many troubles one history of TestHistories has")
	seedsFlag  = flag.Int("seeds", 2, "how many histories TestHistories makes for each size of cluster")
)

// trouble breaks something about the cluster, and returns how to undo it.
type trouble func(c *replicatest.Cluster, rng *rand.Rand) (undo func())

func pick(c *replicatest.Cluster, rng *rand.Rand) *replicatest.Node {
	return c.Nodes()[rng.IntN(len(c.Nodes()))]
}

// victim is the leader, if there is one, half of the times.
func victim(c *replicatest.Cluster, rng *rand.Rand) *replicatest.Node {
	if rng.IntN(2) == 0 {
		for _, n := range c.Nodes() {
			if r := n.Replica(); r != nil && r.Status().Leading {
				return n
			}
		}
	}
	return pick(c, rng)
}

// stubborn is a node that believes that it leads long after the others have
// elected another leader, as a leader does that was frozen.
const stubborn = "n1"

type namedTrouble struct {
	name  string
	cause trouble
}

// troubles are ordered, so that a seed draws the same ones again.
var troubles = []namedTrouble{
	{"crash", func(c *replicatest.Cluster, rng *rand.Rand) func() {
		n := victim(c, rng)
		n.Crash()
		return n.Start
	}},
	{"crash all", func(c *replicatest.Cluster, rng *rand.Rand) func() {
		for _, n := range c.Nodes() {
			n.Crash()
		}
		return func() {
			for _, n := range c.Nodes() {
				n.Start()
			}
		}
	}},
	{"isolate", func(c *replicatest.Cluster, rng *rand.Rand) func() {
		c.Net.Isolate(victim(c, rng).Name)
		return c.Net.Heal
	}},
	{"cut one way", func(c *replicatest.Cluster, rng *rand.Rand) func() {
		n := victim(c, rng)
		for _, other := range c.Nodes() {
			if rng.IntN(2) == 0 {
				c.Net.Cut(n.Name, other.Name)
			} else if rng.IntN(2) == 0 {
				c.Net.Cut(other.Name, n.Name)
			}
		}
		return c.Net.Heal
	}},
	{"delay", func(c *replicatest.Cluster, rng *rand.Rand) func() {
		for _, a := range c.Nodes() {
			for _, b := range c.Nodes() {
				c.Net.Delay(a.Name, b.Name, time.Duration(rng.IntN(60))*time.Millisecond)
			}
		}
		return c.Net.Heal
	}},
	{"isolate the stubborn leader", func(c *replicatest.Cluster, rng *rand.Rand) func() {
		for range 3 {
			// Raft hands over to the first of those that are up to date: that is mostly n1.
			if r := c.Leader().Replica(); r != nil && r.Status().Name != stubborn {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				_ = r.TransferLeadership(ctx, "")
				cancel()
			}
		}
		time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
		c.Net.Isolate(stubborn)
		return c.Net.Heal
	}},
	{"break connections", func(c *replicatest.Cluster, rng *rand.Rand) func() {
		n := victim(c, rng)
		for _, other := range c.Nodes() {
			if other != n {
				c.Net.Break(n.Name, other.Name)
			}
		}
		return func() {}
	}},
	{"transfer leadership", func(c *replicatest.Cluster, rng *rand.Rand) func() {
		done := make(chan struct{})
		r := victim(c, rng).Replica()
		go func() {
			defer close(done)
			if r != nil {
				ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
				defer cancel()
				_ = r.TransferLeadership(ctx, "")
			}
		}()
		return func() { <-done }
	}},
	{"hand over while cut off", handOverCutOff},
	{"slow disk", func(c *replicatest.Cluster, rng *rand.Rand) func() {
		return victim(c, rng).Faults.Inject(store.Fault{
			Op:    store.OpStoreLogs,
			Delay: time.Duration(rng.IntN(700)) * time.Millisecond,
		})
	}},
	{"power cut", powerCut},
	{"bend clocks", func(c *replicatest.Cluster, rng *rand.Rand) func() {
		n := victim(c, rng)
		n.Clock.Jump(time.Duration(rng.IntN(7200)-3600) * time.Second)
		n.Clock.SetRate(0.5 + rng.Float64())
		return func() { n.Clock.SetRate(1) }
	}},
}

// powerCut kills nodes in the middle of an append, starts them again, lets them acknowledge what they found
// in their logs, and then cuts the power of all. The leader, which has it on its disk, stays down for a while.
func powerCut(c *replicatest.Cluster, rng *rand.Rand) func() {
	leader, followers := c.Leader(), c.Followers()
	rng.Shuffle(len(followers), func(i, j int) { followers[i], followers[j] = followers[j], followers[i] })
	needed := min(len(c.Nodes())/2, len(followers)) // with the leader they are a majority
	for _, n := range followers[needed:] {
		n.Crash()
	}
	for _, n := range followers[:needed] {
		n.Disk.HoldSyncs()
	}
	time.Sleep(time.Duration(50+rng.IntN(150)) * time.Millisecond)
	for _, n := range followers[:needed] {
		n.Crash()
		n.Start()
		n.Disk.HoldSyncs()
	}
	time.Sleep(time.Duration(100+rng.IntN(600)) * time.Millisecond)
	return func() {
		for _, n := range c.Nodes() {
			n.PowerCut(rng.Uint64())
		}
		for _, n := range followers {
			n.Start()
		}
		time.Sleep(time.Duration(1000+rng.IntN(2000)) * time.Millisecond)
		leader.Start()
	}
}

// handOverCutOff cuts the leader off, and asks the leader to hand over while its entries cannot land.
func handOverCutOff(c *replicatest.Cluster, rng *rand.Rand) func() {
	leader := c.Leader()
	c.Net.Isolate(leader.Name)
	time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
	handed := make(chan struct{})
	go func() {
		defer close(handed)
		_ = leader.Transfer()
	}()
	return func() {
		c.Net.Heal()
		<-handed
	}
}

// A node that was asked to hand over, and lost its leadership in another way, leads and takes writes later.
func TestHandOversOfCutOffLeaders(t *testing.T) {
	for seed := uint64(1); seed <= 2; seed++ {
		var rec *recorder
		var final string
		synctest.Test(t, func(t *testing.T) {
			rec = troubledHistory(t, 3, seed, 6, []namedTrouble{{"hand over while cut off", handOverCutOff}}, &final)
		})
		rec.check(t, final)
	}
}

// What was acknowledged survives a power cut, also when a node had found it in memory alone.
func TestPowerCutAfterACrashInAnAppend(t *testing.T) {
	protocoltest.SkipShort(t, "a power cut at every write")
	for seed := uint64(1); seed <= 2; seed++ {
		var rec *recorder
		var final string
		synctest.Test(t, func(t *testing.T) {
			rec = troubledHistory(t, 3, seed, 6, []namedTrouble{{"power cut", powerCut}}, &final)
		})
		rec.check(t, final)
	}
}

// What clients are told stays true, whatever happens to nodes, network and clocks.
func TestHistories(t *testing.T) {
	protocoltest.SkipShort(t, "many histories; TestSnapshotHistories is one")
	seeds := []uint64{*seedFlag}
	if *seedFlag == 0 {
		seeds = nil
		for range *seedsFlag {
			seeds = append(seeds, rand.Uint64N(1_000_000)+1)
		}
	}
	for _, nodes := range []int{3, 5} {
		for _, seed := range seeds {
			t.Run(fmt.Sprintf("nodes=%d/seed=%d", nodes, seed), func(t *testing.T) {
				var rec *recorder
				var final string
				synctest.Test(t, func(t *testing.T) { rec = troubledHistory(t, nodes, seed, *roundsFlag, troubles, &final) })
				rec.check(t, final)
			})
		}
	}
}

func troubledHistory(t *testing.T, nodes int, seed uint64, rounds int, troubles []namedTrouble,
	final *string,
) *recorder {
	c := replicatest.New(t, replicatest.Options{Nodes: nodes, Configure: func(c *replica.Config) {
		c.SnapshotPolicy = replica.SnapshotPolicy{SnapshotThreshold: 64, SnapshotInterval: 2 * time.Second, TrailingLogs: 8}
		if c.ID == stubborn {
			c.HeartbeatTimeout, c.LeaseTimeout = 1200*time.Millisecond, 1200*time.Millisecond
		}
	}})
	rec := newRecorder()
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() { rec.client(i, rand.New(rand.NewPCG(seed, uint64(i))), c.Nodes(), stop) })
	}
	rng := rand.New(rand.NewPCG(seed, 1<<32))
	for range rounds {
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
		trouble := troubles[rng.IntN(len(troubles))]
		undo := trouble.cause(c, rng)
		time.Sleep(time.Duration(rng.IntN(5000)) * time.Millisecond)
		undo()
	}
	time.Sleep(5 * time.Second)
	close(stop)
	clients.Wait()
	requireAllLead(t, c, rec)
	c.Settle()
	reply := c.Leader().Do("GET", logKey)
	require.False(t, reply.IsError(), reply.Str)
	*final = reply.Str
	return rec
}

// requireAllLead requires that each node can lead, and takes writes then, whatever it went through.
func requireAllLead(t *testing.T, c *replicatest.Cluster, rec *recorder) {
	t.Helper()
	for _, n := range c.Nodes() {
		for i := 0; c.Leader() != n; i++ {
			require.Less(t, i, 10, "%s does not become leader", n.Name)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			_ = c.Leader().Replica().TransferLeadership(ctx, n.ID)
			cancel()
		}
		failed := rec.do(-1, n, input{key: logKey, write: fmt.Sprintf("%d.%s ", rec.now(), n.Name)})
		require.False(t, failed, "%s leads and takes no write", n.Name)
	}
}
