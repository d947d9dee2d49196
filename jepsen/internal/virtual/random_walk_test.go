package virtual

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/nemesis"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/raftnode"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/servertest"
)

// randomWalk is a cluster under random actions. Leaders begin changes of the members that they need not finish.
type randomWalk struct {
	t *testing.T
	target
	rng         *rand.Rand
	clients     sync.WaitGroup
	sent, acked atomic.Int64 // number of increments of a counter
	judged      int          // number of times that the cluster had to serve without the dead members
	quarantined bool         // whether any node was in quarantine
	story       []any
}

func runRandomWalk(t *testing.T, seed uint64) (judged int) {
	replicatest.Seed(t, seed)
	w := &randomWalk{t: t, rng: rand.New(rand.NewPCG(seed, 3))}
	w.world = newWorld(t, worldOptions{nodes: 3, seed: seed, raw: true, slow: seed%2 == 0})
	require.NoError(t, w.target.Start(t.Context()))
	for _, place := range w.Spares() {
		if w.rng.IntN(2) == 0 {
			require.NoError(t, w.Add(t.Context(), place, w.rng.IntN(2) == 0))
		}
	}
	defer w.clients.Wait()
	for range 6 {
		w.stretch(t.Context())
	}
	return w.judged
}

// stretch performs some faults and mends them, except that some members stay dead. The others must serve if their logs
// let raft elect one of them. Then all run, and no acknowledged write may be lost.
func (w *randomWalk) stretch(ctx context.Context) {
	changing, end := context.WithCancel(ctx)
	for range 3 + w.rng.IntN(14) {
		nodes, pause := w.Nodes(), time.Duration(max(0, w.rng.IntN(1350)-450))*time.Millisecond
		w.step(changing, nodes[w.rng.IntN(len(nodes))])
		time.Sleep(pause)
		w.story = append(w.story, pause)
	}
	for _, place := range w.places {
		w.cluster.Net.Rejoin(place)
	}
	for _, place := range w.Nodes() {
		dies, runs := w.rng.IntN(4) > 0, w.rng.IntN(3) > 0
		if dies || !runs {
			_ = w.Kill(place)
		}
		if runs {
			_ = w.world.Start(place)
		}
		w.story = append(w.story, place, "in the end: dies", dies, "runs", runs)
	}
	end()
	synctest.Wait() // a leader may have a change to apply first
	if able := w.electable(); able != "" {
		before, n := w.shown(), nemesis.Nemesis{Target: w.target, Recorder: history.NewRecorder(1)}
		require.True(w.t, n.Serves(ctx, ""), "%s could lead\nbefore: %s\nnow: %s\n%v", able, before, w.shown(), w.story)
		w.judged++
	}
	for _, place := range w.Nodes() {
		_ = w.world.Start(place)
	}
	acked, counted := w.acked.Load(), protocol.Err("not read")
	for tries := 0; counted.IsError() && tries < 100; tries++ {
		require.NoError(w.t, w.Serving(ctx), w.story)
		if leader, known := w.Leader(ctx); known {
			counted = w.cluster.Node(leader).Do("INCRBY", "counter", "0")
		}
	}
	require.False(w.t, counted.IsError(), counted)
	require.True(w.t, acked <= counted.Num && counted.Num <= w.sent.Load(), "%d acknowledged, %d counted, %d sent\n%v",
		acked, counted.Num, w.sent.Load(), w.story)
	for _, place := range w.Nodes() {
		if w.Removed(place) { // the place gets a new node
			require.NoError(w.t, w.Out(place))
			require.NoError(w.t, w.Add(ctx, place, w.rng.IntN(2) == 0))
		}
	}
}

// step performs a random action at a place.
func (w *randomWalk) step(ctx context.Context, place string) {
	n := w.cluster.Node(place)
	op, r := w.rng.IntN(24), n.Replica()
	w.story = append(w.story, place, "does", op)
	switch {
	case op < 2:
		w.cluster.Net.Isolate(place)
	case op < 3:
		w.cluster.Net.Rejoin(place)
	case op < 5:
		_ = w.Kill(place)
	case op < 9:
		_ = w.world.Start(place)
	case op < 10:
		_ = w.Cut(place)
	case op < 15:
		w.change(ctx, place)
	case r == nil:
	case op < 16:
		w.clients.Go(func() { _ = r.TakeSnapshot() })
	case op < 17:
		w.clients.Go(func() { _ = n.Transfer() })
	case op < 18 && !w.quarantined:
		w.quarantined = true
		r.Quarantine()
	default:
		w.sent.Add(1)
		w.clients.Go(func() {
			if !n.Do("INCR", "counter").IsError() {
				w.acked.Add(1)
			}
		})
	}
}

// change lets a leader begin a change of a member, sometimes after cutting the leader off.
func (w *randomWalk) change(ctx context.Context, place string) {
	leader, known := w.Leader(ctx)
	if !known {
		return
	}
	kinds := []raftnode.ChangeKind{raftnode.AddVoter, raftnode.AddVoter, raftnode.Demote, raftnode.Remove}
	r, kind, alone := w.cluster.Node(leader).Replica(), kinds[w.rng.IntN(len(kinds))], w.rng.IntN(3) == 0
	conf, m := r.Configuration(), w.cluster.Node(place).Member()
	if !conf.Has(m.ID) || kind != raftnode.AddVoter && conf.Voters() <= 2 {
		return
	}
	if alone {
		w.cluster.Net.Isolate(leader)
	}
	w.story = append(w.story, leader, "begins change", kind, "alone", alone)
	w.clients.Go(func() { _, _ = r.Change(ctx, replica.Change{Kind: kind, Member: m, After: conf.Index}) })
}

// electable returns a node that can be elected under the configuration in its log by the running nodes, one of which is
// not in quarantine, or "".
func (w *randomWalk) electable() string {
	running := slices.DeleteFunc(w.cluster.Nodes(), func(n *servertest.Node) bool {
		return n.Replica() == nil || n.Removed()
	})
	for _, k := range running {
		conf, term, last := k.Replica().Configuration(), k.Replica().LastTerm(), k.Replica().Status().LastLog
		votes, healthy := 0, false
		for _, o := range running {
			if r := o.Replica(); conf.IsVoter(o.ID) {
				on, _ := r.Quarantined()
				healthy = healthy || !on
				if t := r.LastTerm(); t < term || t == term && r.Status().LastLog <= last {
					votes++
				}
			}
		}
		if healthy && conf.IsVoter(k.ID) && votes >= conf.Quorum() {
			return k.Name
		}
	}
	return ""
}
