package virtual

import (
	"context"
	"errors"
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
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

func TestServesWithinTenElectionTimeouts(t *testing.T) {
	require.Equal(t, 10*replica.DefaultElectionTimeout, nemesis.ServesWithin)
}

// TestVoterThatKnowsNoOtherThatIsUp: a voter is off while two nodes join, and all members that it knows are lost. The
// new ones tell it of the members once they have lost their leader, or at their next check, so an election takes little
// longer than usual.
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

// TestStandStillIsFound: a cluster that grants nothing for seconds after all faults is a finding.
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

// TestLastKilledStaysDead: a member that the last fault killed stays dead in the epilogue, which can spare no other of
// three.
func TestLastKilledStaysDead(t *testing.T) {
	d := drive(t, runOptions{
		workload: "register", nemesis: "kill-minority", nodes: 3, seed: 1, time: 15 * time.Second, light: true,
	})
	require.Equal(t, 1+3, d.judged(), "and once with each leader")
	require.GreaterOrEqual(t, d.h.Faults[len(d.h.Faults)-1].Stop, int64(15*time.Second))
}

// judged returns how often the cluster had to serve.
func (d *driven) judged() int {
	return d.others[slices.IndexFunc(d.others, func(r checker.Result) bool { return r.Name == "liveness" })].Looked
}

// TestMemberThatCannotLeadIsFound: it is a finding even if the others serve.
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

// follower is a target with a member that never leads.
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
