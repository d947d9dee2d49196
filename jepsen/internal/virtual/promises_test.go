package virtual

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/servertest"
)

// The promises of the README, a test each, with the promise's sentence as its comment. Most are rows: workloads, and
// faults that could break the promise. The workloads' checkers judge.

// TestREADMEPromises compares the sentences above the tests with the README's.
func TestREADMEPromises(t *testing.T) {
	text, err := os.ReadFile("../../../README.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "\n| promise | how it is kept | tested by |\n|---|---|---|\n")
	require.True(t, found, "the README has no table of promises")
	table, _, _ = strings.Cut(table, "\n\n")
	var promised []string
	for row := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(row, "| \n"), " | ")
		require.Len(t, cells, 3, row)
		promised = append(promised, cells[0]+" "+cells[2])
	}
	file, err := parser.ParseFile(token.NewFileSet(), "promises_test.go", nil, parser.ParseComments)
	require.NoError(t, err)
	var tested []string
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || !strings.HasPrefix(f.Name.Name, "TestPromise") {
			continue
		}
		sentence, _, _ := strings.Cut(f.Doc.Text(), "\n\n")
		sentence = strings.ReplaceAll(strings.TrimSpace(sentence), "\n", " ")
		tested = append(tested, fmt.Sprintf("%s [%s](jepsen/internal/virtual/promises_test.go)", sentence, f.Name.Name))
	}
	require.Equal(t, promised, tested, "left: the README's promises; right: what is written above the tests")
}

// promise is the workloads and faults that test a promise.
type promise struct {
	workload, nemesis string
	time              time.Duration
	prompt            bool // no node believes for seconds that it still leads
	last              func(t *testing.T, tgt target, final func())
}

// keep tests a promise with three nodes and with five. all is called with each run.
func (p promise) keep(t *testing.T, all func(t *testing.T, d *driven)) {
	eachSeed(t, 4, func(t *testing.T, seed uint64) {
		verdict, text := judged(t, runOptions{
			workload: p.workload, nemesis: p.nemesis, nodes: 3 + 2*int(seed%2), seed: seed, time: p.time, stubborn: seed%4 < 3 && !p.prompt,
			slow: seed%2 == 0, last: p.last, over: func(d *driven) { all(t, d) },
		})
		if testing.Verbose() {
			t.Log(text)
		}
		require.Equal(t, checker.Valid, verdict, text)
	})
}

// struck counts the faults with a name that had an effect.
func struck(d *driven, name string) (n int) {
	for _, f := range d.h.Faults {
		if f.Name == name && !strings.Contains(f.Detail, "it had served nobody since") {
			n++
		}
	}
	return n
}

// An acknowledged write survives the loss of any minority of nodes, and a power cut on all of them
func TestPromiseDurable(t *testing.T) {
	protocoltest.SkipShort(t, "a simulation; TestPromiseLinearizable is one")
	p := promise{
		workload: "append,register,counter", time: 20 * time.Second,
		nemesis: "kill-minority,kill-all,power-cut,power-restart,snapshot",
	}
	p.last = func(t *testing.T, tgt target, final func()) {
		for _, few := range minorities(tgt.Nodes()) {
			for _, node := range few {
				require.NoError(t, tgt.Kill(node))
				tgt.set(node, false)
			}
			require.NoError(t, tgt.Serving(t.Context()))
			final()
			for _, node := range few {
				tgt.set(node, true)
				require.NoError(t, tgt.world.Start(node))
			}
			require.NoError(t, tgt.Serving(t.Context()))
		}
	}
	cuts := 0
	p.keep(t, func(t *testing.T, d *driven) {
		require.Greater(t, d.h.Count(history.OK), 500)
		cuts += struck(d, "power-cut") + struck(d, "power-restart")
	})
	require.Positive(t, cuts)
}

// minorities returns all sets of nodes of the size that the cluster can spare.
func minorities(nodes []string) (sets [][]string) {
	for i, a := range nodes {
		if len(nodes) == 3 {
			sets = append(sets, []string{a})
			continue
		}
		for _, b := range nodes[i+1:] {
			sets = append(sets, []string{a, b})
		}
	}
	return sets
}

// Every data command is linearizable, reads too, on whichever node the client is connected to
func TestPromiseLinearizable(t *testing.T) {
	functions := map[string]bool{}
	promise{
		workload: "register,counter,append,txn,script,lock,queue", time: time.Minute,
		nemesis: "partition-leader,pause-leader,partition-oneway,transfer,snapshot",
	}.keep(t, func(t *testing.T, d *driven) {
		for _, op := range d.h.Ops {
			if op.Outcome == history.OK {
				functions[op.F] = true
			}
		}
	})
	require.Greater(t, len(functions), 12, "some kind of operation was never answered: %v", functions)
}

// A fencing token from `INCR` only ever grows, over failovers and restarts
func TestPromiseFencing(t *testing.T) {
	promise{
		workload: "counter", nemesis: "kill,restart,partition-leader,transfer,power-cut,snapshot", time: 20 * time.Second,
	}.keep(t, func(t *testing.T, d *driven) { require.Greater(t, d.h.Count(history.OK), 500) })
}

// A lease never ends early because a wall clock jumped or the leader changed
func TestPromiseLeases(t *testing.T) {
	promise{
		workload: "lock,ttl", nemesis: "clock-leader,clock-jump,kill-leader,transfer,restart-all", time: 30 * time.Second,
	}.keep(t, func(t *testing.T, d *driven) {
		granted := d.h.Filter(func(o *history.Op) bool {
			return o.F == "acquire" && o.Outcome == history.OK && o.Out(0) == 1
		}).Ops
		require.Greater(t, len(granted), 10, "hardly any lock was granted")
	})
}

// A command is applied at most once, also when Holdfast itself retries it over a failover
func TestPromiseAtMostOnce(t *testing.T) {
	const slowest = 500 * time.Millisecond // without an election, in this network
	retried := 0
	promise{
		workload: "append,counter", nemesis: "packets-reset,partition-leader,kill-leader", time: 30 * time.Second,
	}.keep(t, func(_ *testing.T, d *driven) {
		for _, o := range d.h.Ops {
			if took := time.Duration(o.Return - o.Call); o.Outcome == history.OK && o.F == "append" && took > slowest {
				retried++
			}
		}
	})
	require.Positive(t, retried, "no command outlived a failover")
}

// A node whose data folder was put back from a copy, or copied, ends before it votes or serves, if a member that
// answers knows of its later start
func TestPromiseIncarnation(t *testing.T) {
	ended := 0
	promise{
		workload: "append,counter,lock", nemesis: "member-back,kill-minority,transfer,snapshot", time: 40 * time.Second,
	}.keep(t, func(_ *testing.T, d *driven) { ended += struck(d, "member-back") })
	require.Greater(t, ended, 3, "hardly any folder was put back behind a later start")
}

// A node whose state differs from a majority's is found within `--consistency-check-interval`; from then on it neither
// leads nor answers, until its state is replaced
func TestPromiseReplicas(t *testing.T) {
	wrong := 0
	promise{
		workload: "counter,register", nemesis: "state-wrong,kill-leader,transfer", time: 2 * time.Minute,
	}.keep(t, func(_ *testing.T, d *driven) { wrong += struck(d, "state-wrong") })
	require.Greater(t, wrong, 4, "hardly any state was made wrong")
}

// A majority of healthy members serves again within seconds after faults end, whatever happened before
//
// The epilogue of every other run judges this after the faults of a schedule, and here anything happens at random.
func TestPromiseServesAgain(t *testing.T) {
	judged := 0
	eachSeed(t, 8, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { judged += runRandomWalk(t, seed) })
	})
	require.Positive(t, judged)
}

// An error that clients retry blindly is sent only when the command surely was not applied
//
// A workload takes CLUSTERDOWN and TRYAGAIN for a failure, UNCERTAIN and a lost connection for an unknown outcome, and
// the checkers do not find in the final reads what failed.
func TestPromiseErrors(t *testing.T) {
	protocoltest.SkipShort(t, "a simulation; TestPromiseLinearizable is one")
	outcomes := map[history.Outcome]int{}
	promise{
		workload: "append", nemesis: "partition,kill-minority,kill-all", time: 20 * time.Second,
		last: func(_ *testing.T, _ target, final func()) {
			time.Sleep(time.Minute) // messages in transit arrive
			final()
		},
	}.keep(t, func(_ *testing.T, d *driven) {
		for _, o := range d.h.Ops {
			if o.F == "append" {
				outcomes[o.Outcome]++
			}
		}
	})
	require.Len(t, outcomes, 3, "the troubles did not lead to all outcomes: %v", outcomes)
}

// Bad input gets Redis's own error; it never stops a node and never makes replicas differ
func TestPromiseBadInput(t *testing.T) {
	protocoltest.SkipShort(t, "a simulation; TestPromiseLinearizable is one")
	eachSeed(t, 6, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			c := servertest.New(t, servertest.Options{})
			c.Leader()
			for _, n := range c.Nodes() {
				requireRedisErrors(t, c.Client(n, 2))
			}
			vandalise(t, c, seed)
			for _, n := range c.Nodes() {
				require.Empty(t, n.Deaths(), n.Name)
				require.NotNil(t, n.Replica(), n.Name)
			}
			c.Settle()
			// Replaying the log leads to the same state.
			for _, n := range c.Nodes() {
				n.Crash()
			}
			for _, n := range c.Nodes() {
				n.Start()
			}
			c.Settle()
		})
	})
}
