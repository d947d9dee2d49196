package checker

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// TestOnesAreJudgedAsTheSearchJudges compares small random histories, right and wrong ones.
func TestOnesAreJudgedAsTheSearchJudges(t *testing.T) {
	verdicts := map[porcupine.CheckResult]int{}
	for seed := range uint64(20_000) {
		h := &history.History{Ops: onesHistory(rand.New(rand.NewPCG(seed, 1)))}
		ops := operations(h.Ops, CounterFunctions)
		want := porcupine.CheckOperationsTimeout(Counter(), ops, time.Minute)
		require.Equal(t, want, linearOnes(ops), "seed %d: %v", seed, h.Ops)
		verdicts[want]++
	}
	require.Greater(t, verdicts[porcupine.Ok], 2_000)
	require.Greater(t, verdicts[porcupine.Illegal], 2_000)
}

// onesHistory is up to nine operations on one counter; in every second history one answer is changed.
func onesHistory(rng *rand.Rand) []history.Op {
	ops := make([]history.Op, 1+rng.IntN(9))
	var sum int64
	for i := range ops {
		o := &ops[i]
		at := int64(10 * i)
		*o = history.Op{
			Index: i, Process: i, F: "add", Key: "c", Input: []int64{1}, Outcome: history.OK,
			Call: at - rng.Int64N(25), Return: at + rng.Int64N(25),
		}
		read := rng.IntN(3) == 0
		if read {
			o.F, o.Input = "read", nil
		}
		done := true
		if !read && rng.IntN(3) == 0 {
			o.Outcome, done = history.Info, rng.IntN(2) == 0
		}
		if !read && done {
			sum++
		}
		if o.Outcome == history.OK {
			o.Output = []int64{sum}
		}
	}
	if o := &ops[rng.IntN(len(ops))]; rng.IntN(2) == 0 && o.Outcome == history.OK {
		o.Output = []int64{o.Out(0) + rng.Int64N(5) - 2}
	}
	return ops
}

// TestManyUnknownOnesAreDecided has a history on which a search does not end.
func TestManyUnknownOnesAreDecided(t *testing.T) {
	var ops []history.Op
	add := func(call, end int64, outcome history.Outcome, sum ...int64) {
		ops = append(ops, history.Op{
			Process: len(ops), F: "add", Key: "c", Input: []int64{1}, Outcome: outcome, Output: sum,
			Call: call, Return: end,
		})
	}
	for i := range int64(60) {
		add(i, 100, history.Info)
	}
	for i := range int64(60) {
		add(200+i, 300, history.OK, 2*i+2)
	}
	require.Equal(t, porcupine.Ok, linearOnes(operations(ops, CounterFunctions)))
	add(400, 500, history.OK, 122)
	require.Equal(t, porcupine.Illegal, linearOnes(operations(ops, CounterFunctions)),
		"61 additions are missing and 60 are unknown")
}

func TestOtherSumsAreLeftToTheSearch(t *testing.T) {
	two := []history.Op{{F: "add", Key: "c", Input: []int64{2}, Outcome: history.OK, Output: []int64{2}, Return: 1}}
	require.Equal(t, porcupine.Unknown, linearOnes(operations(two, CounterFunctions)))
	require.Equal(t, porcupine.Ok, CounterFunctions.judge(Counter(), operations(two, CounterFunctions)))
}
