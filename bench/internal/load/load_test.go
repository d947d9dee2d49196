package load

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// sleeper is an op that takes as long as a server would.
func sleeper(d time.Duration) Op {
	return func(_ context.Context, start time.Time, r *Recorder) error {
		<-time.After(d)
		r.Latency("step", start, time.Now())
		r.Count("done", 2, time.Now())
		return nil
	}
}

func workers(n int, op Op) []Op {
	all := make([]Op, n)
	for i := range all {
		all[i] = op
	}
	return all
}

func TestClosedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var edges []time.Duration
		start := time.Now()
		edge := func() { edges = append(edges, time.Since(start)) }
		s, err := Run(t.Context(), Config{Warmup: time.Second, Measure: 10 * time.Second, Begin: edge, End: edge},
			workers(4, sleeper(10*time.Millisecond)))
		require.NoError(t, err)
		step := s.Steps["step"]
		require.EqualValues(t, 4000, step.Count)
		require.Equal(t, 400.0, step.PerSecond)
		require.InEpsilon(t, 10_000, step.P50Micros, 0.001)
		require.InEpsilon(t, 10_000, step.MaxMicros, 0.001)
		require.EqualValues(t, 8000, s.Counts["done"])
		require.Empty(t, s.Errors)
		require.Equal(t, []time.Duration{time.Second, 11 * time.Second}, edges)
	})
}

func TestOpenLoopKeepsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Run(t.Context(), Config{Warmup: time.Second, Measure: 10 * time.Second, RatePerSecond: 100},
			workers(4, sleeper(10*time.Millisecond)))
		require.NoError(t, err)
		require.EqualValues(t, 1000, s.Steps["step"].Count)
		require.InEpsilon(t, 10_000, s.Steps["step"].MaxMicros, 0.001)
	})
}

// A freeze of two seconds must count for every operation due meanwhile, not only for one.
func TestOpenLoopDoesNotOmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		op := func(_ context.Context, start time.Time, r *Recorder) error {
			if now := time.Since(begin); now >= 5*time.Second && now < 7*time.Second {
				<-time.After(7*time.Second - now)
			}
			<-time.After(time.Millisecond)
			r.Latency("step", start, time.Now())
			return nil
		}
		c := Config{Warmup: time.Second, Measure: 10 * time.Second, RatePerSecond: 100}
		s, err := Run(t.Context(), c, workers(1, op))
		require.NoError(t, err)
		step := s.Steps["step"]
		require.EqualValues(t, 1000, step.Count)
		require.Greater(t, step.P90Micros, 1_000_000.0, "two of ten seconds")
		require.Equal(t, 1000.0, step.P50Micros)

		begin = time.Now()
		c.RatePerSecond = 0
		s, err = Run(t.Context(), c, workers(1, op))
		require.NoError(t, err)
		require.Equal(t, 1000.0, s.Steps["step"].P99Micros, "a closed loop omits it")
	})
}

func TestOpenLoopCountsWhatItNeverBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Run(t.Context(), Config{Measure: 10 * time.Second, RatePerSecond: 10}, workers(1, sleeper(time.Second)))
		require.NoError(t, err)
		done := s.Steps["step"].Count
		require.EqualValues(t, 21, done)                         // ten in the window, the rest in the ten seconds after it
		require.InDelta(t, 1.0, s.Steps["step"].PerSecond, 0.11) // the completed rate, not the offered one
		require.EqualValues(t, 100-done, s.Errors["not begun: the rate is more than the server takes"])
	})
}

func TestErrorsAreNoLatencies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := func(context.Context, time.Time, *Recorder) error { return errors.New("broken") }
		s, err := Run(t.Context(), Config{Measure: time.Second}, workers(2, broken))
		require.NoError(t, err)
		require.Empty(t, s.Steps)
		require.Equal(t, map[string]int64{"broken": 200}, s.Errors)
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := Run(ctx, Config{Measure: time.Hour, RatePerSecond: 1}, workers(2, sleeper(time.Millisecond)))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 3500*time.Millisecond, time.Since(start))
	})
}

// Latencies of 1 to 10,000 ms, each once, in all recorders.
func TestQuantiles(t *testing.T) {
	from := time.Now()
	all := newRecorders(window{from: from, to: from.Add(time.Hour)})
	for ms := range 10_000 {
		all[ms%len(all)].Latency("step", from, from.Add(time.Duration(ms+1)*time.Millisecond))
	}
	got := summarize(all, 10*time.Second).Steps["step"]
	require.EqualValues(t, 10_000, got.Count)
	require.Equal(t, 1000.0, got.PerSecond)
	for want, micros := range map[float64]float64{
		5000.5: got.MeanMicros, 5000: got.P50Micros, 9000: got.P90Micros, 9900: got.P99Micros, 9990: got.P999Micros,
		10_000: got.MaxMicros,
	} {
		require.InEpsilon(t, want*1000, micros, 0.001)
	}
}
