package server_test

import (
	"flag"
	"testing"
	"time"

	"github.com/holdfast/holdfast/protocol/protocoltest"
)

var (
	simSeed  = flag.Uint64("seed", 0, "run the simulation of this seed only")
	simSeeds = flag.Int("seeds", 12, "how many simulations to run")
	simOps   = flag.Int64("ops", 800, "operations of clients in one simulation")
)

// TestSim lets clients do everything while everything goes wrong, and checks
// what they saw. A seed draws the same troubles, requests and timeouts again.
func TestSim(t *testing.T) {
	protocoltest.SkipShort(t, "a simulation; TestPromiseLinearizable is one")
	first, count := uint64(1), *simSeeds
	if *simSeed != 0 {
		first, count = *simSeed, 1
	}
	for seed := first; seed < first+uint64(count); seed++ {
		o := ordeal{
			nodes: 3, seed: seed, clients: 6, ops: *simOps, pause: 200 * time.Millisecond,
			mix: everything, troubles: allTroubles, longest: 3 * time.Second,
		}
		if seed%4 == 0 {
			o.nodes = 5
		}
		o.pass(t, checks{})
	}
}
