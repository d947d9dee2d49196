package virtual

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// churned are the faults that strike while members come and go.
const churned = "member,partition,kill,restart,pause,snapshot,transfer"

func TestMembersComeAndGoUnderFaults(t *testing.T) {
	protocoltest.SkipShort(t, "long simulations")
	eachSeed(t, 3, func(t *testing.T, seed uint64) {
		o := runOptions{
			workload: "append,register,counter,lock,native,queue", nemesis: "member", nodes: 3, seed: seed, time: time.Minute,
			stubborn: seed%2 == 0,
		}
		if seed%2 == 0 {
			o.nemesis = "member," + trueRates
		}
		requireValid(t, o)
	})
}

// The promises of native locks hold while members come and go: each loss is told and none is false, fences grow,
// sessions end with what they live by, and nothing is left.
func TestNativeLocksWhileMembersComeAndGo(t *testing.T) {
	protocoltest.SkipShort(t, "long simulations")
	eachSeed(t, 2, func(t *testing.T, seed uint64) {
		o := runOptions{
			workload: nativeLocks, nemesis: "member", nodes: 3, seed: seed, time: 40 * time.Second,
			stubborn: seed%2 == 0,
		}
		if seed%2 == 0 {
			o.nemesis = churned
		}
		requireValid(t, o)
	})
}

// However members came and went, in the end there is a leader, no change is stuck, and every node is a member that
// keeps up. Few clients, so that many seeds can be run.
func TestClusterIsWholeAfterChanges(t *testing.T) {
	eachSeed(t, 2, func(t *testing.T, seed uint64) {
		o := runOptions{
			workload: "register", nemesis: churned, nodes: 3, seed: seed, time: time.Minute, light: true,
			stubborn: seed%4 == 0,
		}
		if seed%5 == 0 {
			o.nodes = 5
		}
		requireValid(t, o)
	})
}

func requireValid(t *testing.T, o runOptions) {
	t.Helper()
	verdict, text := judged(t, o)
	if testing.Verbose() || verdict != checker.Valid {
		t.Log(text)
	}
	require.Equal(t, checker.Valid, verdict, text)
}
