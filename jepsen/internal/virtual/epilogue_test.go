package virtual

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/nemesis"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/frontend"
	"github.com/holdfast/holdfast/server/raftnode"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

func TestServesWithinTenElectionTimeouts(t *testing.T) {
	require.Equal(t, 10*replica.DefaultElectionTimeout, nemesis.ServesWithin)
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
						w.cluster.Node("n3").Replica().Quarantine()
					}
					n := nemesis.Nemesis{Target: tgt, Recorder: history.NewRecorder(1)}
					require.True(t, n.Serves(t.Context(), ""), tgt.shown())
				})
			})
		}
	}
}

// TestVoterThatKnowsNoOtherThatIsUp was off while two joined, and all whom it knows are lost then. The two that joined
// tell it of the members as soon as they have lost their leader, or at their next check, so that this takes little longer
// than any election.
func TestVoterThatKnowsNoOtherThatIsUp(t *testing.T) {
	protocoltest.SkipShort(t, "simulations")
	for back, within := range map[time.Duration]int{0: 4, 5 * time.Second: 6} {
		eachSeed(t, 5, func(t *testing.T, seed uint64) {
			synctest.Test(t, func(t *testing.T) {
				replicatest.Seed(t, seed)
				w := newWorld(t, worldOptions{nodes: 3, seed: seed})
				tgt := target{service{w}}
				require.NoError(t, tgt.Start(t.Context()))
				require.NoError(t, tgt.Kill("n3"))
				require.NoError(t, tgt.Add(t.Context(), "n4", true))
				require.NoError(t, tgt.Add(t.Context(), "n5", true))
				require.NoError(t, tgt.Serving(t.Context()))
				require.NoError(t, tgt.Kill("n1"))
				require.NoError(t, tgt.Kill("n2"))
				time.Sleep(back)
				require.NoError(t, w.Start("n3"))
				n := nemesis.Nemesis{Target: tgt, Recorder: history.NewRecorder(1)}
				begun := time.Now()
				require.True(t, n.Serves(t.Context(), ""), tgt.shown())
				require.Less(t, time.Since(begun), time.Duration(within)*replica.DefaultElectionTimeout, "back after %s: %s", back,
					tgt.shown())
			})
		})
	}
}

// TestChangeOfVotersThatWasLost: a leader that is cut off gives a fourth node its vote, and the others elect a leader
// whose log does not have that change. The new leader and the fourth node are lost. The two nodes that are left are a
// majority of the three voters, and serve, although one of them has a log with four voters.
func TestChangeOfVotersThatWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicatest.Seed(t, 1)
		w := newWorld(t, worldOptions{nodes: 3, seed: 1})
		tgt := target{service{w}}
		require.NoError(t, tgt.Start(t.Context()))
		require.NoError(t, tgt.Add(t.Context(), "n4", false))
		require.NoError(t, tgt.caughtUp(t.Context(), "n4"))
		first, _ := tgt.Leader(t.Context())
		r, n4 := w.cluster.Node(first).Replica(), w.cluster.Node("n4").Member()
		w.cluster.Net.Isolate(first)
		go func() { // the outcome stays unknown
			_, _ = r.Change(t.Context(), replica.Change{Kind: raftnode.AddVoter, Member: n4, After: r.Configuration().Index})
		}()
		time.Sleep(replica.DefaultElectionTimeout / 10)
		require.True(t, r.Configuration().IsVoter(n4.ID))
		require.NoError(t, tgt.Kill(first))
		require.NoError(t, tgt.Kill("n4"))
		w.cluster.Net.Rejoin(first)
		require.NoError(t, tgt.Serving(t.Context()))
		second, _ := tgt.Leader(t.Context())
		for _, name := range w.places[:3] {
			require.NoError(t, tgt.Kill(name))
		}
		for _, name := range w.places[:3] {
			if name != second {
				require.NoError(t, w.Start(name))
			}
		}
		n := nemesis.Nemesis{Target: tgt, Recorder: history.NewRecorder(1)}
		require.True(t, n.Serves(t.Context(), ""), tgt.shown())
	})
}

// TestStandStillIsFound: of a cluster that grants nothing for some seconds when all faults have ceased.
func TestStandStillIsFound(t *testing.T) {
	const length = 10 * time.Second
	var begun time.Time
	silent := func(_ *rng, b frontend.Backend, u *replica.Batch) error {
		if since := time.Since(begun); length < since && since < length+nemesis.ServesWithin+time.Second {
			return protocol.ErrNoLeader
		}
		return b.Execute(u)
	}
	d := drive(t, runOptions{
		workload: "register", nemesis: "none", nodes: 3, seed: 1, time: length, light: true,
		broken: func(_ string, b frontend.Backend) frontend.Backend {
			begun = time.Now()
			return &mutant{b, nil, silent}
		},
	})
	require.True(t, d.invalid("liveness"))
}

// TestLastKilledStaysDead for the epilogue, which can lose no other of three then.
func TestLastKilledStaysDead(t *testing.T) {
	d := drive(t, runOptions{
		workload: "register", nemesis: "kill-minority", nodes: 3, seed: 1, time: 15 * time.Second, light: true,
	})
	require.Equal(t, 1+3, d.judged(), "and once with each leader")
	require.GreaterOrEqual(t, d.h.Faults[len(d.h.Faults)-1].Stop, int64(15*time.Second))
}

// judged is how often the cluster had to serve.
func (d *driven) judged() int {
	return d.others[slices.IndexFunc(d.others, func(r checker.Result) bool { return r.Name == "liveness" })].Looked
}

// TestBareMajorityServes: what the faults leave that spare just a majority.
func TestBareMajorityServes(t *testing.T) {
	protocoltest.SkipShort(t, "simulations; TestClusterIsWholeAfterChanges is one")
	for _, fault := range []string{"member-absent", "state-frozen", "state-last"} {
		eachSeed(t, 2, func(t *testing.T, seed uint64) {
			o := runOptions{
				workload: "register", nemesis: fault, nodes: 3 + 2*int(seed%2), seed: seed, time: time.Minute, light: true,
			}
			requireValid(t, o)
		})
	}
}

// TestMemberThatCannotLeadIsFound, whatever else serves.
func TestMemberThatCannotLeadIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicatest.Seed(t, 1)
		tgt := target{service{newWorld(t, worldOptions{nodes: 3, seed: 1})}}
		require.NoError(t, tgt.Start(t.Context()))
		n := nemesis.Nemesis{Target: follower{tgt, "n2"}, Recorder: history.NewRecorder(1)}
		n.EachLeads(t.Context())
		require.Equal(t, []string{"n2 cannot lead in the end: refused"}, n.Findings())
		judged, stalls := n.Liveness()
		require.Equal(t, 2, judged)
		require.Empty(t, stalls)
	})
}

// follower is a cluster with a member that never leads.
type follower struct {
	target
	place string
}

func (f follower) Lead(ctx context.Context, place string) error {
	if place == f.place {
		return errors.New("refused")
	}
	return f.target.Lead(ctx, place)
}
