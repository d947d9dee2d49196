package replicatest

import (
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

// Seed has raft's timeouts drawn from a seed, until the next call: hashicorp/raft draws them from the global source of
// math/rand. Runs in one process share the source, so a run that is to come back must be alone.
//
// Requires: the test's package says "//go:debug randseednop=0" in one of its files (rand.Seed has no effect else).
func Seed(t testing.TB, seed uint64) {
	t.Helper()
	draw := func() int64 {
		//lint:ignore SA1019 raft has no source of its own
		rand.Seed(int64(seed))
		return rand.Int63()
	}
	require.Equal(t, draw(), draw(), "the package's tests lack //go:debug randseednop=0")
	//lint:ignore SA1019 raft has no source of its own
	rand.Seed(int64(seed))
}
