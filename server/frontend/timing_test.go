package frontend

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
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
	r := &row{Command: &protocol.Command{Name: "x"}}
	for i := range 1000 {
		r.took(time.Duration(i+1) * time.Microsecond)
	}
	require.EqualValues(t, 500_500, r.micros())
	p := r.times.Load().percentiles(50, 99, 99.9)
	require.Equal(t, []string{"507.903", "1015.807", "1015.807"}, p)
}

// Connections note their times while others reset the counters.
func TestTimesBesideAReset(t *testing.T) {
	var r row
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50_000 {
				r.took(time.Microsecond)
				r.times.Store(nil)
			}
		})
	}
	all.Wait()
}

// Slow events are one a second, the slowest, and 160 of a kind.
func TestLatencyEvents(t *testing.T) {
	s := New(Config{}, newCluster())
	c := &conn{srv: s}
	ask := func(f func(*conn, [][]byte) protocol.Value, words ...string) protocol.Value {
		args := [][]byte{[]byte("LATENCY"), nil}
		for _, w := range words {
			args = append(args, []byte(w))
		}
		return f(c, args)
	}
	get, _ := protocol.Lookup("get")
	s.slow.monitorMillis.Store(5)
	at := time.Unix(1000, 0)
	note := func(second int, millis time.Duration) {
		s.slow.note(s.rows[get], slowEntry{at: at.Add(time.Duration(second) * time.Second), took: millis * time.Millisecond})
	}
	note(0, 4)
	require.Empty(t, ask(latencyLatest).Elems)
	note(0, 7)
	note(0, 6)
	note(1, 5)
	require.Equal(t, "*1\r\n*4\r\n$12\r\nfast-command\r\n:1001\r\n:5\r\n:7\r\n", string(ask(latencyLatest).AppendTo(nil, protocol.RESP2)))
	require.Equal(t, "*2\r\n*2\r\n:1000\r\n:7\r\n*2\r\n:1001\r\n:5\r\n", string(ask(latencyHistory, "fast-command").AppendTo(nil, protocol.RESP2)))
	require.Contains(t, ask(latencyDoctor).Str, "fast-command: 2 latency spikes (average 6ms). Worst all time event 7ms.")
	for second := range 200 {
		note(second, 10)
	}
	require.Len(t, ask(latencyHistory, "fast-command").Elems, mostSamples)
	require.Contains(t, ask(latencyGraph, "fast-command").Str, "fast-command - high 10 ms, low 10 ms (all time high 10 ms)\n---")
	require.Equal(t, protocol.Integer(0), ask(latencyReset, "command"))
	require.Equal(t, protocol.Integer(1), ask(latencyReset))
	require.Empty(t, ask(latencyLatest).Elems)
	s.slow.mu.Lock()
	require.Len(t, s.slow.entries, defaultSlowEntries)
	s.slow.mu.Unlock()
}
