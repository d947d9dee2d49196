package observe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// TestLatencyEvents shows that of the slow events of a kind, LATENCY keeps the slowest of each second, and at most
// maxSamples.
func TestLatencyEvents(t *testing.T) {
	l := NewSlowlog()
	ask := func(f func(*Slowlog, [][]byte) protocol.Value, words ...string) protocol.Value {
		return f(l, protocoltest.Args(append([]string{"LATENCY", ""}, words...)))
	}
	get, _ := protocol.Lookup("get")
	l.MonitorMillis.Store(5)
	at := time.Unix(1000, 0)
	note := func(second int, millis time.Duration) {
		l.Note(get, Entry{At: at.Add(time.Duration(second) * time.Second), Took: millis * time.Millisecond})
	}
	note(0, 4)
	require.Empty(t, ask((*Slowlog).latencyLatest).Elems)
	note(0, 7)
	note(0, 6)
	note(1, 5)
	require.Equal(t, "*1\r\n*4\r\n$12\r\nfast-command\r\n:1001\r\n:5\r\n:7\r\n",
		string(ask((*Slowlog).latencyLatest).AppendTo(nil, protocol.RESP2)))
	require.Equal(t, "*2\r\n*2\r\n:1000\r\n:7\r\n*2\r\n:1001\r\n:5\r\n",
		string(ask((*Slowlog).latencyHistory, "fast-command").AppendTo(nil, protocol.RESP2)))
	require.Contains(t, ask((*Slowlog).latencyDoctor).Str,
		"fast-command: 2 latency spikes (average 6ms). Worst all time event 7ms.")
	for second := range 200 {
		note(second, 10)
	}
	require.Len(t, ask((*Slowlog).latencyHistory, "fast-command").Elems, maxSamples)
	require.Contains(t, ask((*Slowlog).latencyGraph, "fast-command").Str,
		"fast-command - high 10 ms, low 10 ms (all time high 10 ms)\n---")
	require.Equal(t, protocol.Integer(0), ask((*Slowlog).latencyReset, "command"))
	require.Equal(t, protocol.Integer(1), ask((*Slowlog).latencyReset))
	require.Empty(t, ask((*Slowlog).latencyLatest).Elems)
	require.Equal(t, defaultSlowEntries, l.count())
}

// TestSlowlog shows that the slow log returns the latest entries, newest first, while its limit changes, and that a
// full one takes the next entry without an allocation.
func TestSlowlog(t *testing.T) {
	l := NewSlowlog()
	get, _ := protocol.Lookup("get")
	noted := 0
	note := func() {
		l.Note(get, Entry{Took: time.Second})
		noted++
	}
	for _, most := range []int64{3, 5, 2, 4, 0, 1, 3} {
		l.MaxEntries.Store(most)
		for range 8 {
			before := l.count()
			note()
			kept := min(most, int64(before)+1)
			var ids []int64
			for _, e := range l.get([][]byte{[]byte("SLOWLOG"), []byte("GET"), []byte("-1")}).Elems {
				ids = append(ids, e.Elems[0].Num)
			}
			require.Len(t, ids, int(kept))
			for i, id := range ids {
				require.Equal(t, int64(noted-1-i), id)
			}
			require.Equal(t, int(kept), l.count())
		}
		if most > 0 {
			require.Zero(t, testing.AllocsPerRun(20, note), "a full log of %d", most)
		}
	}
	for l.oldest == 0 {
		note()
	}
	l.reset(nil)
	note()
	require.Equal(t, 1, l.count())
}
