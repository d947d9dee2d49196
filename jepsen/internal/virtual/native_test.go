package virtual

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
)

func TestNativeLocksUnderMixedFaults(t *testing.T) {
	eachSeed(t, 2, func(t *testing.T, seed uint64) {
		o := runOptions{
			workload: "native,nativequeue,nativeall,nativesession", nemesis: trueRates, nodes: 3, seed: seed,
			time: 30 * time.Second,
		}
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

// TestHoldersThatAreSilent: locks of frozen or vanished holders are free after their leases, and not before, under
// load.
func TestHoldersThatAreSilent(t *testing.T) {
	eachSeed(t, 2, func(t *testing.T, seed uint64) {
		var d *driven
		verdict, text := decided(t, seed, func(seed uint64) (checker.Verdict, string) {
			d = drive(t, runOptions{
				workload: "nativesession", nemesis: "holder-frozen,holder-vanished", nodes: 3, light: true, slow: seed%2 == 0,
				seed: seed, time: 50 * time.Second,
			})
			return d.judge()
		})
		require.Equal(t, checker.Valid, verdict, text)
		require.GreaterOrEqual(t, len(d.h.Faults), 3, text)
		for _, f := range d.h.Faults {
			require.Equal(t, 5, strings.Count(f.Detail, ", "), "all were judged: %s", text)
			require.NotContains(t, f.Detail, "not judged", text)
		}
	})
}

// TestManyHoldsThatEnd: when thousands of holds end together, waiters are granted at once, and not before the end.
func TestManyHoldsThatEnd(t *testing.T) {
	eachSeed(t, 1, func(t *testing.T, seed uint64) {
		var d *driven
		verdict, text := decided(t, seed, func(seed uint64) (checker.Verdict, string) {
			d = drive(t, runOptions{
				workload: "native", nemesis: "holder-many", nodes: 3, light: true, seed: seed,
				time: time.Minute,
			})
			return d.judge()
		})
		require.Equal(t, checker.Valid, verdict, text)
		require.GreaterOrEqual(t, len(d.h.Faults), 3, text)
		for _, f := range d.h.Faults {
			require.Regexp(t, `\(\d+ holds; the next after \S+, \S+, \S+; others`, f.Detail, "all were granted: %s", text)
		}
	})
}

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
