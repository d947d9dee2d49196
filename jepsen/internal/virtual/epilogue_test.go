package virtual

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/nemesis"
	"github.com/holdfast/holdfast/protocol/protocoltest"
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

// TestBareMajorityServes: what the faults leave that spare just a majority.
func TestBareMajorityServes(t *testing.T) {
	protocoltest.SkipShort(t, "simulations; TestClusterIsWholeAfterChanges is one")
	for _, fault := range []string{"member-absent", "state-frozen", "state-last"} {
		eachSeed(t, 3, func(t *testing.T, seed uint64) {
			o := runOptions{
				workload: "register", nemesis: fault, nodes: 3 + 2*int(seed%2), seed: seed, time: time.Minute, light: true,
			}
			requireValid(t, o)
		})
	}
}
