package checker

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

func TestQueuesWrongOnPurposeAreFound(t *testing.T) {
	queue, deliveries := Queue(Clocks{}), Deliveries(Clocks{})
	judge(t, []sample{
		{"a client waits beside a value", queue, `
			0-500  pop  q 500 0 ->
			50-60  push q 1 -> 1
			900-910 left q -> 1`, noOrder},
		{"a client waits beside a value that it does not know of yet", queue, `
			0-500   pop  q 500 0 ->
			490-520 push q 1 -> 1
			900-910 left q -> 1`, ""},
		{"a client waits in vain while nobody pushes", queue, `
			0-500   pop  q 500 0 ->
			600-700 push q 1 -> 1
			900-910 left q -> 1`, ""},
		{"the wait was over while the value was there", queue, `
			0-10    push q 1 -> 1
			20-700  pop  q 500 0 ->
			800-810 pop  q 0 0 -> 1`, noOrder},
		{"a value pushed while a client waits", queue, `
			0-100   pop  q 500 0 -> 1
			90-110  push q 1 -> 1`, ""},
		{"last in, first out", queue, `
			0-10    push q 1 2 -> 2
			20-30   pop  q 0 0 -> 2`, noOrder},
		{"out of the order of pushes", queue, `
			0-10    push q 1 -> 1
			20-30   push q 2 -> 2
			40-50   pop  q 0 0 -> 2`, noOrder},
		{"two waiters, two values", queue, `
			0-100   pop  q 500 0 -> 2
			10-100  pop  q 500 0 -> 1
			50-60   push q 1 2 -> 2`, ""},
		{"delivered twice", queue, `
			0-10    push q 1 -> 1
			20-30   pop  q 0 0 -> 1
			40-50   pop  q 0 0 -> 1`, noOrder},
		{"a length that nobody can have seen", queue, `
			0-10    push q 1 -> 1
			20-30   push q 2 -> 3`, noOrder},
		{"a pop that nobody heard of takes one value", queue, `
			0-10    push q 1 2 -> 2
			20-30   pop  q 0 0 info
			40-50   pop  q 0 0 -> 2`, ""},
		{"a pop that nobody heard of takes no two", queue, `
			0-10    push q 1 2 3 -> 3
			20-30   pop  q 0 0 info
			40-50   pop  q 0 0 -> 3`, noOrder},
		{"left behind, though it was taken", queue, `
			0-10    push q 1 -> 1
			20-30   pop  q 0 0 -> 1
			40-50   left q -> 1`, noOrder},
		{"a push that nobody heard of lands late", queue, `
			0-10    push q 1 info
			20-30   pop  q 0 0 ->
			40-50   pop  q 0 0 -> 1`, ""},

		{"served twice", deliveries, `
			0-10    push q 1 -> 1
			20-30   pop  q 0 0 -> 1
			40-50   pop  q 0 0 -> 1`, "delivered twice"},
		{"served and still there", deliveries, `
			0-10    push q 1 -> 1
			20-30   pop  q 0 0 -> 1
			40-50   left q -> 1`, "delivered twice"},
		{"a waiter got two values, and told of one", deliveries, `
			0-10    push q 1 2 -> 2
			20-30   pop  q 0 0 -> 1
			40-50   left q ->
			40-50   done q ->`, "lost"},
		{"nobody got a value that was acknowledged", deliveries, `
			0-10    push q 1 -> 1
			40-50   left q ->
			40-50   done q ->`, "lost"},
		{"a pop that nobody heard of may have it", deliveries, `
			0-10    push q 1 -> 1
			20-30   pop  q 0 0 info
			40-50   left q ->
			40-50   done q ->`, ""},
		{"what failed is there", deliveries, `
			0-10    push q 1 fail
			20-30   pop  q 0 0 -> 1`, "what failed"},
		{"out of nowhere", deliveries, `
			20-30   pop  q 0 0 -> 1`, "no client pushed"},
		{"the wait was too short", deliveries, `
			0-400   pop  q 500 0 ->`, "100ms early"},
		{"moved, and not there", deliveries, `
			0-10    push q 1 -> 1
			20-30   pop  q 0 1 -> 1
			40-50   left q ->
			40-50   done q ->`, "moved a value that is not there"},
		{"moved out of order", deliveries, `
			0-10    push q 1 2 -> 2
			40-50   done q -> 2 1`, "moved behind"},
		{"moved out of the order of pushes", deliveries, `
			0-10    push q 1 -> 1
			20-30   push q 2 -> 2
			40-50   done q -> 2 1`, "moved behind"},
		{"moved in order", deliveries, `
			0-10    push q 1 2 -> 2
			0-10    push q 3 -> 1
			20-30   pop  q 0 1 -> 3
			40-50   left q ->
			40-50   done q -> 3 1 2`, ""},
	})
}

// TestOnesAreJudgedAsTheSearchJudges compares linearOnes with the search, for small random histories, linearizable or
// not.
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

// onesHistory returns up to nine operations on one counter. In every second history one reply is changed.
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

// TestManyUnknownOnesAreDecided shows that linearOnes decides a history on which a search does not end.
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

func TestSharingWrongOnPurposeIsFound(t *testing.T) {
	sharing, wakes := Sharing(Clocks{}), Wakes(TTLBounds{Late: time.Second, Settle: time.Second})
	judge(t, []sample{
		{"readers together", sharing, `
			0-10    share l 1 1000 -> 1
			20-30   share l 2 1000 -> 1
			40-50   acquire l 3 1000 -> 0
			60-70   release-shared l 1 -> 1
			80-90   release-shared l 2 -> 1
			95-99   acquire l 3 1000 -> 1`, ""},
		{"a writer beside a reader", sharing, `
			0-10    share l 1 1000 -> 1
			40-50   acquire l 3 1000 -> 1`, "two holders"},
		{"a reader beside a writer", sharing, `
			0-10    acquire l 1 1000 -> 1
			40-50   share l 3 1000 -> 1`, "two holders"},
		{"a reader beside a writer, whom a longer reader hides", sharing, `
			0-10    acquire l 1 1000 -> 1
			40-50   share l 2 9000 -> 1
			60-70   share l 3 1000 -> 1`, "double grants 2"},
		{"two writers", sharing, `
			0-10    acquire l 1 1000 -> 1
			40-50   acquire l 3 1000 -> 1`, "two holders"},
		{"the writer of a reader that is over", sharing, `
			0-10     share l 1 1000 -> 1
			999-1050 acquire l 3 1000 -> 1`, ""},
		{"a reader's lease without its last millisecond", sharing, `
			0-10    share l 1 1000 -> 1
			990-999 acquire l 3 1000 -> 1`, ""},
		{"a reader's lease without its last two milliseconds", sharing, `
			0-10    share l 1 1000 -> 1
			990-998 acquire l 3 1000 -> 1`, "two holders"},
		{"a writer's lease without its last millisecond", sharing, `
			0-10    acquire l 1 1000 -> 1
			990-999 share l 3 1000 -> 1`, "two holders"},
		{"a longer lease was lost", sharing, `
			0-10     share l 1 1000 -> 1
			500-510  extend-shared l 1 1000 -> 1
			999-1050 acquire l 3 1000 -> 1`, "two holders"},
		{"a lease that was over is no longer", sharing, `
			0-10     share l 1 1000 -> 1
			990-1010 extend-shared l 1 1000 -> 1
			999-1050 acquire l 3 1000 -> 1`, ""},
		{"a reader's lease lost", sharing, `
			0-10     share l 1 1000 -> 1
			500-510  release-shared l 1 -> 0`, "lost a lease"},
		{"a writer's lease lost", sharing, `
			0-10     acquire l 1 1000 -> 1
			500-510  extend l 1 1000 -> 0`, "lost a lease"},
		{"given back", sharing, `
			0-10     acquire l 1 1000 -> 1
			20-90    release l 1 info
			50-60    acquire l 2 1000 -> 1`, ""},

		{"woken", wakes, `
			20-30     release l 1 -> 1
			60-60     wait l 2 0 -> 1`, ""},
		{"not woken", wakes, `
			20-30     release l 1 -> 1
			1600-1600 wait l 2 0 -> 0`, "1.57s behind"},
		{"not woken yet", wakes, `
			20-30     release l 1 -> 1
			600-600   wait l 2 0 -> 0`, ""},
		{"not woken, as something is broken", wakes, `
			fault 10-900
			20-30     release l 1 -> 1
			1600-1600 wait l 2 0 -> 0`, ""},
		{"given back before the client listened", wakes, `
			20-30     release l 1 -> 1
			1600-1600 wait l 2 25000000 -> 0`, ""},
		{"given back by somebody who had it no more", wakes, `
			20-30     release l 1 -> 0
			1600-1600 wait l 2 0 -> 0`, ""},
	})
}
