package virtual

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
)

func TestUsersUnderMixedFaults(t *testing.T) {
	eachSeed(t, 2, func(t *testing.T, seed uint64) {
		verdict, text := judged(t, runOptions{
			workload: "users", nemesis: trueRates, nodes: 3, seed: seed, time: 20 * time.Second, stubborn: seed%2 == 0,
		})
		if testing.Verbose() || verdict != checker.Valid {
			t.Log(text)
		}
		require.Equal(t, checker.Valid, verdict, text)
		require.Contains(t, text, "most keys 3", "the quota is reached")
	})
}
