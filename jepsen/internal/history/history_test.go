package history

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRecorderKeepsOrderTimesAndProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(2)
		time.Sleep(time.Millisecond)
		a := r.Invoke(0, Op{F: "write", Key: "k", Input: []int64{1}})
		b := r.Invoke(1, Op{F: "read", Key: "k"})
		time.Sleep(time.Millisecond)
		a.Complete(Info, "timed out")
		b.OK(1)
		c := r.Invoke(0, Op{F: "read", Key: "k"})
		c.Complete(Fail, "refused")
		r.Invoke(1, Op{F: "read", Key: "k"}) // never completed

		h := r.History()
		require.NoError(t, h.Validate())
		require.Equal(t, []int{0, 1, 2, 1}, processes(h), "after an unknown outcome the worker is a new process")
		require.Equal(t, int64(time.Millisecond), h.Ops[0].Call)
		require.Equal(t, int64(2*time.Millisecond), h.Ops[1].Return)
		require.Equal(t, Info, h.Ops[3].Outcome, "what never completed has no known outcome")
		require.Equal(t, 2, h.Count(Info))
	})
}

func processes(h *History) []int {
	var ps []int
	for _, o := range h.Ops {
		ps = append(ps, o.Process)
	}
	return ps
}

func sample() *History {
	return &History{
		Ops: []Op{
			{Index: 0, Process: 0, Node: "n1", F: "write", Key: "r1", Input: []int64{3}, Outcome: OK, Call: 1, Return: 4},
			{Index: 1, Process: 1, Node: "n2", F: "read", Key: "r1", Output: []int64{3}, Outcome: OK, Call: 2, Return: 5},
			{
				Index: 2, Process: 2, F: "txn", Outcome: OK, Call: 3, Return: 9,
				Txn: []Micro{{F: "append", Key: "x", Value: 7}, {F: "r", Key: "y", List: []int64{1, 2}}},
			},
			{
				Index: 3, Process: 3, Node: "n3", F: "cas", Key: "r1", Input: []int64{3, 4}, Outcome: Info,
				Error: "timed \"out\"\x01", Call: 6, Return: 8,
			},
		},
		Faults: []Fault{{Name: "kill", Detail: "n1", Start: 2, Stop: 7, Nature: Nature{"clock", true, 0.12}}},
	}
}

func TestJSONIsReadBackEqual(t *testing.T) {
	var buf bytes.Buffer
	require.NoError(t, sample().WriteJSON(&buf))
	back, err := ReadJSON(&buf)
	require.NoError(t, err)
	require.Equal(t, sample(), back)
}

func TestEDNIsWhatJepsenReads(t *testing.T) {
	var buf bytes.Buffer
	require.NoError(t, sample().WriteEDN(&buf))
	want := strings.Join([]string{
		`{:index 0, :time 1, :type :invoke, :process 0, :f :write, :value ["r1" 3], :node "n1"}`,
		`{:index 1, :time 2, :type :invoke, :process 1, :f :read, :value ["r1" nil], :node "n2"}`,
		`{:index 2, :time 2, :type :info, :process :nemesis, :f :start-kill, :value "n1"}`,
		`{:index 3, :time 3, :type :invoke, :process 2, :f :txn, :value [[:append "x" 7] [:r "y" nil]]}`,
		`{:index 4, :time 4, :type :ok, :process 0, :f :write, :value ["r1" 3], :node "n1"}`,
		`{:index 5, :time 5, :type :ok, :process 1, :f :read, :value ["r1" 3], :node "n2"}`,
		`{:index 6, :time 6, :type :invoke, :process 3, :f :cas, :value ["r1" [3 4]], :node "n3"}`,
		`{:index 7, :time 7, :type :info, :process :nemesis, :f :stop-kill, :value "n1"}`,
		`{:index 8, :time 8, :type :info, :process 3, :f :cas, :value ["r1" [3 4]], :node "n3", :error "timed \"out\"\u0001"}`,
		`{:index 9, :time 9, :type :ok, :process 2, :f :txn, :value [[:append "x" 7] [:r "y" [1 2]]]}`,
	}, "\n") + "\n"
	require.Equal(t, want, buf.String())
}

func TestValidateFindsBrokenHistories(t *testing.T) {
	cases := map[string][]Op{
		"returns before its call":    {{Outcome: OK, Call: 2, Return: 1}},
		"has outcome":                {{Outcome: "maybe"}},
		"at the same time":           {{Outcome: OK, Call: 1, Return: 5}, {Index: 1, Outcome: OK, Call: 3, Return: 6}},
		"had no known outcome":       {{Outcome: Info, Call: 1, Return: 2}, {Index: 1, Outcome: OK, Call: 3, Return: 6}},
		"operation 1 returns before": {{Outcome: OK, Call: 1, Return: 2}, {Index: 1, Outcome: OK, Call: 3, Return: 1}},
	}
	for want, ops := range cases {
		require.ErrorContains(t, (&History{Ops: ops}).Validate(), want)
	}
}

// The silences of a random history are those that a search of all operations finds.
func TestSilencesAreThoseOfASearchOfAll(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 200 {
		h := &History{}
		for range 1 + rng.IntN(12) {
			call := rng.Int64N(int64(3 * time.Second))
			o := Op{Call: call, Return: call + rng.Int64N(int64(time.Second)), Node: "n1", Outcome: OK}
			if rng.IntN(3) == 0 {
				o.Outcome = Info
			}
			h.Ops = append(h.Ops, o)
		}
		spans := h.silences()
		require.Equal(t, searchedSilences(h), spans)
		found += len(spans)
	}
	require.Positive(t, found)
}

func searchedSilences(h *History) (spans []Span) {
	var good []int64
	for _, o := range h.Ops {
		if o.Outcome == OK {
			good = append(good, o.Return)
		}
	}
	slices.Sort(good)
	for i := 1; i < len(good); i++ {
		from, to := good[i-1], good[i]
		asked := to
		for _, o := range h.Ops {
			if o.Call < to && o.Return > from {
				asked = min(asked, max(from, o.Call))
			}
		}
		if to-from >= minSilence && to-asked >= minSilence {
			spans = append(spans, Span{asked, to})
		}
	}
	return spans
}
