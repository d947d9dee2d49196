package virtual

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
)

func TestNativeLocksUnderMixedFaults(t *testing.T) {
	eachSeed(t, 2, func(t *testing.T, seed uint64) {
		o := runOptions{workload: "native,nativequeue,nativeall,nativesession", nemesis: trueRates, nodes: 3, seed: seed, time: 30 * time.Second}
		switch seed % 4 {
		case 0:
			o.nemesis = "mixed"
		case 1:
			o.nemesis = "none"
		}
		o.stubborn = seed%2 == 0
		verdict, text := judged(t, o)
		if testing.Verbose() || verdict != checker.Valid {
			t.Log(text)
		}
		require.Equal(t, checker.Valid, verdict, text)
	})
}
