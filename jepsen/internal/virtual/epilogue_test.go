package virtual

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/servertest"
)

// The epilogue of a run asks what no checker of a history can: whether a cluster that could serve does. All is mended.
// Then as many members go for good as the cluster can do without, killed or silent, and a lock has to be granted soon.

// servesWithin is how long a majority of healthy members may take to grant a lock.
const servesWithin = 10 * replica.DefaultElectionTimeout

// epilogue has a minority go for good, and returns what is wrong. The minority comes back in the end.
func (t target) epilogue(ctx context.Context, seed uint64) (wrong []string) {
	sight, leads := t.look(ctx)
	if !leads {
		return []string{"no leader before the epilogue"}
	}
	rng := rand.New(rand.NewPCG(seed, 3))
	var healthy []*servertest.Node
	for _, n := range t.cluster.Nodes() {
		if sight.committed.IsVoter(n.ID) && sight.conf.IsVoter(n.ID) && isHealthy(n) {
			healthy = append(healthy, n)
		}
	}
	rng.Shuffle(len(healthy), func(i, j int) { healthy[i], healthy[j] = healthy[j], healthy[i] })
	lost := len(healthy) - max(sight.committed.Quorum(), sight.conf.Quorum())
	if lost <= 0 {
		return nil // a majority, and no more, is healthy: nobody can go
	}
	silent := rng.IntN(2) == 0
	for _, n := range healthy[:lost] {
		if silent {
			t.cluster.Net.Isolate(n.Name)
		} else if err := t.Kill(n.Name); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	if took, ok := grants(healthy[lost:]); !ok {
		wrong = append(wrong, fmt.Sprintf("liveness: %d healthy members of %d voters granted nothing within %s of the loss "+
			"of %d (after %s, silent: %t): %s", len(healthy)-lost, sight.committed.Voters(), servesWithin, lost, took, silent, t.shown()))
	}
	for _, n := range healthy[:lost] {
		if silent {
			t.cluster.Net.Rejoin(n.Name)
		} else if err := t.world.Start(n.Name); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	return wrong
}

// isHealthy reports whether a node runs, and is not in quarantine.
func isHealthy(n *servertest.Node) bool {
	r := n.Replica()
	if r == nil {
		return false
	}
	on, _ := r.Quarantined()
	return !on
}

// grants has clients of all those nodes ask for locks until one has one, and reports whether that was soon enough.
func grants(nodes []*servertest.Node) (took time.Duration, ok bool) {
	begun := time.Now()
	var clients sync.WaitGroup
	var first atomic.Int64 // nanoseconds from begun; 0: none yet
	for i, n := range nodes {
		clients.Go(func() {
			for first.Load() == 0 && time.Since(begun) < servesWithin {
				if n.Replica() != nil && !n.Do("SET", fmt.Sprint("epilogue", i), "v", "PX", "10000").IsError() {
					first.CompareAndSwap(0, int64(max(1, time.Since(begun))))
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	clients.Wait()
	took = time.Duration(first.Load())
	return took, took > 0 && took <= servesWithin
}

// TestMembersChangeWhileAVoterIsAway, and another voter is lost then. What is left is a majority of the newest voters,
// and serves; so it does when a member in quarantine is among them.
func TestMembersChangeWhileAVoterIsAway(t *testing.T) {
	protocoltest.SkipShort(t, "simulations")
	for name, quarantine := range map[string]bool{"good": false, "another in quarantine": true} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/started again=%t", name, again), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					replicatest.Seed(t, 1)
					w := newWorld(t, worldOptions{nodes: 3, seed: 1})
					tgt := target{service{w}}
					require.NoError(t, tgt.Start(t.Context()))
					away, four := w.cluster.Node("n3"), w.cluster.Node("n4")
					require.NoError(t, tgt.Kill("n3"))
					require.NoError(t, tgt.Add(t.Context(), "n4", true))
					require.NoError(t, tgt.Remove(t.Context(), "n1"))
					require.NoError(t, tgt.Serving(t.Context()))
					if again {
						require.NoError(t, tgt.Kill("n4"))
					}
					require.NoError(t, tgt.Kill("n2"))
					if again {
						require.NoError(t, w.Start("n4"))
					}
					require.NoError(t, w.Start("n3"))
					if quarantine {
						away.Replica().Quarantine()
					}
					took, ok := grants([]*servertest.Node{away, four})
					require.True(t, ok, "after %s: %s", took, tgt.shown())
				})
			})
		}
	}
}
