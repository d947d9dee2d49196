package metrics

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The steps of LATENCY HISTOGRAM are Redis's.
func TestStepsAreRedis(t *testing.T) {
	var micros []uint64
	for i := range timeSteps {
		micros = append(micros, stepLimit(i)/1000)
	}
	require.Equal(t, []uint64{
		1, 2, 4, 8, 16, 33, 66, 132, 264, 528, 1056, 2113, 4227, 8454, 16908, 33816, 67633, 135266, 270532, 541065,
	}, micros[:20])
}

// A time is in the least step that holds it, and a fine step is off by a sixteenth at most.
func TestStepsHoldTimes(t *testing.T) {
	times := []uint64{0, 1, 15, 16, 17, 31, 32, 1000, 1023, 1024, 1031, 1032, 16511, 16512, 1 << 40}
	for range 1000 {
		times = append(times, rand.Uint64()>>(24+rand.IntN(40)))
	}
	for _, nanos := range times {
		i := stepOf(nanos)
		require.True(t, nanos <= stepLimit(i) || i == timeSteps-1, nanos)
		require.True(t, i == 0 || nanos > stepLimit(i-1), nanos)
		limit := fineLimit(fineOf(nanos))
		if nanos < 1<<36 {
			require.GreaterOrEqual(t, limit, nanos)
			require.LessOrEqual(t, limit, nanos+nanos/16, nanos)
		}
	}
}

func TestPercentiles(t *testing.T) {
	r := &Command{Name: "x"}
	for i := range 1000 {
		r.Took(time.Duration(i+1) * time.Microsecond)
	}
	require.EqualValues(t, 500_500, r.micros())
	p := r.times.Load().percentiles(50, 99, 99.9)
	require.Equal(t, []string{"507.903", "1015.807", "1015.807"}, p)
}

// Connections note their times while others reset the counters.
func TestTimesBesideAReset(t *testing.T) {
	var r Command
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50_000 {
				r.Took(time.Microsecond)
				r.times.Store(nil)
			}
		})
	}
	all.Wait()
}
