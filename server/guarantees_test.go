package server_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/servertest"
)

// Each promise of the README is one test here, with its sentence above it. The
// tests run clients against whole clusters in trouble; the troubles are drawn from seeds,
// which the tests' names show.

// TestREADMEPromises compares the sentences above the tests with the README's.
func TestREADMEPromises(t *testing.T) {
	text, err := os.ReadFile("../README.md")
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
	file, err := parser.ParseFile(token.NewFileSet(), "guarantees_test.go", nil, parser.ParseComments)
	require.NoError(t, err)
	var tested []string
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || !strings.HasPrefix(f.Name.Name, "TestPromise") {
			continue
		}
		sentence, _, _ := strings.Cut(f.Doc.Text(), "\n\n")
		sentence = strings.ReplaceAll(strings.TrimSpace(sentence), "\n", " ")
		tested = append(tested, fmt.Sprintf("%s [%s](server/guarantees_test.go)", sentence, f.Name.Name))
	}
	require.Equal(t, promised, tested, "left: the README's promises; right: what is written above the tests")
}

// An acknowledged write survives the loss of any minority of nodes, and a power cut on all of them
func TestPromiseDurable(t *testing.T) {
	protocoltest.SkipShort(t, "a simulation; TestPromiseLinearizable is one")
	ordeal{
		seed: 100, clients: 5, ops: 250, pause: 150 * time.Millisecond, longest: 2 * time.Second,
		mix:      mix{addToLog, addToLog, addToLog, getLog, setRegister, incr},
		troubles: []trouble{crashMinority, crashAll, crashMost, snapshot},
	}.each(t, checks{cluster: func(t *testing.T, c *servertest.Cluster, h *history) {
		acknowledged := h.where(func(op *operation) bool { return op.what == appendLog && op.told == answered })
		require.NotEmpty(t, acknowledged)
		for _, few := range minorities(c.Nodes()) {
			restart := crash(few)
			content := logs(t, c)
			for _, op := range acknowledged {
				require.Equal(t, 1, occurrences(content, op), "%q in %s without %d nodes", op.input.text, op.key, len(few))
			}
			restart()
			c.Settle()
		}
	}})
}

// occurrences counts how often a token is in the log that it was appended to.
func occurrences(content map[string]string, op operation) int {
	return strings.Count(" "+content[op.key], " "+op.input.text)
}

// minorities returns all sets of as many nodes as the cluster can do without.
func minorities(nodes []*servertest.Node) [][]*servertest.Node {
	var sets [][]*servertest.Node
	for i, a := range nodes {
		if len(nodes) == 3 {
			sets = append(sets, []*servertest.Node{a})
			continue
		}
		for _, b := range nodes[i+1:] {
			sets = append(sets, []*servertest.Node{a, b})
		}
	}
	return sets
}

// logs reads the logs that clients append to, on any node that runs.
func logs(t *testing.T, c *servertest.Cluster) map[string]string {
	content := make(map[string]string)
	for _, n := range c.Nodes() {
		if n.Replica() == nil {
			continue
		}
		conn := c.Client(n, 2)
		for _, key := range []string{"log0", "log1"} {
			v, err := conn.Do("GET", key)
			for err == nil && v.IsError() { // nobody leads yet
				v, err = conn.Do("GET", key)
			}
			require.NoError(t, err)
			content[key] = v.Str
		}
		conn.Close()
		return content
	}
	require.Fail(t, "no node runs")
	return nil
}

// Every data command is linearizable, reads too, on whichever node the client is connected to
func TestPromiseLinearizable(t *testing.T) {
	kinds := make(map[what]int)
	ordeal{
		seed: 200, clients: 8, ops: 600, pause: 150 * time.Millisecond, longest: 3 * time.Second,
		mix: everything, troubles: []trouble{partition, isolateStubborn, shatter, slow, transfer, crashMinority, snapshot},
	}.each(t, checks{history: func(t *testing.T, h *history) {
		for _, op := range h.where(func(op *operation) bool { return op.told == answered }) {
			kinds[op.what]++
		}
	}})
	require.Len(t, kinds, 12, "some kind of operation was never answered: %v", kinds)
}

// A fencing token from `INCR` only ever grows, over failovers and restarts
func TestPromiseFencing(t *testing.T) {
	ordeal{
		seed: 300, clients: 6, ops: 400, pause: 100 * time.Millisecond, longest: 2 * time.Second,
		mix: mix{incr}, troubles: []trouble{crashMinority, crashAll, partition, transfer, shutDown, snapshot},
	}.each(t, checks{history: func(t *testing.T, h *history) {
		tokens := h.where(func(op *operation) bool { return op.what == increment && op.told == answered })
		require.NotEmpty(t, tokens)
		for i, a := range tokens {
			for _, b := range tokens[i+1:] {
				if a.key == b.key && (a.num == b.num || a.ret < b.call && a.num > b.num) {
					t.Errorf("%s was asked at %v, and %s at %v", describe(a.input, a.output), time.Duration(a.call),
						describe(b.input, b.output), time.Duration(b.call))
				}
			}
		}
	}})
}

// A lease never ends early because a wall clock jumped or the leader changed
func TestPromiseLeases(t *testing.T) {
	ordeal{
		seed: 400, clients: 5, ops: 300, pause: 150 * time.Millisecond, longest: 1500 * time.Millisecond,
		mix:      mix{useLock, getLock, getLock},
		troubles: []trouble{wallClocks, wallClocks, crashMinority, transfer, partition, crashAll, shutDown},
	}.each(t, checks{
		cluster: func(t *testing.T, c *servertest.Cluster, _ *history) {
			// And it does end.
			time.Sleep(3 * time.Second)
			conn := c.Client(c.Leader(), 2)
			defer conn.Close()
			for _, key := range []string{"lock0", "lock1"} {
				v, err := conn.Do("SET", key, "last", "NX")
				require.NoError(t, err)
				require.Equal(t, "OK", v.Str, key)
			}
		},
		history: requireExclusive,
	})
}

// requireExclusive checks that nobody saw anything but a lock's token from when it was
// granted until its lease was over, or it was given back.
func requireExclusive(t *testing.T, h *history) {
	ops := h.where(func(op *operation) bool { return op.told != refused })
	granted := 0
	for _, grant := range ops {
		if grant.what != acquire || grant.told != answered || !grant.done {
			continue
		}
		granted++
		until := grant.call + grant.ttl.Nanoseconds()
		for _, op := range ops {
			if op.what == release && op.input.text == grant.input.text {
				until = min(until, op.call)
			}
		}
		for _, op := range ops {
			if op.key != grant.key || op.call < grant.ret || op.ret > until || op.told != answered {
				continue
			}
			taken := op.what == acquire && op.done
			other := op.what == readLock && op.output.text != grant.input.text
			if taken || other {
				t.Errorf("a lease was granted at %v to %v:\n%s\nbut at %v:\n%s", time.Duration(grant.call), time.Duration(until),
					describe(grant.input, grant.output), time.Duration(op.call), describe(op.input, op.output))
			}
		}
	}
	require.Greater(t, granted, 10, "hardly any lock was granted")
}

// A command is applied at most once, also when Holdfast itself retries it over a failover
func TestPromiseAtMostOnce(t *testing.T) {
	retried := 0
	ordeal{
		seed: 500, clients: 6, ops: 400, pause: 60 * time.Millisecond, longest: time.Second,
		mix:      mix{addToLog, addToLog, incr, getLog},
		troubles: []trouble{partition, transfer, breakConnections, crashMinority, isolateStubborn, slow},
	}.each(t, checks{cluster: func(t *testing.T, c *servertest.Cluster, h *history) {
		content := logs(t, c)
		for _, op := range h.where(func(op *operation) bool { return op.what == appendLog }) {
			require.LessOrEqual(t, occurrences(content, op), 1, "%q was applied more than once", op.input.text)
			if took := time.Duration(op.ret - op.call); op.told == answered && took > 400*time.Millisecond {
				retried++ // no network is as slow as that: a leader was elected meanwhile
			}
		}
	}})
	require.Positive(t, retried, "no command outlived a failover")
}

// A node whose data folder was put back from a copy, or copied, ends before it votes or serves, if a member that
// answers knows of its later start
func TestPromiseIncarnation(t *testing.T) {
	ended := 0
	ordeal{
		seed: 550, clients: 6, ops: 400, pause: 100 * time.Millisecond, longest: 2 * time.Second,
		mix:      mix{addToLog, addToLog, incr, getLog, useLock},
		troubles: []trouble{putBack, putBack, crashMinority, partition, transfer, snapshot},
	}.each(t, checks{cluster: func(t *testing.T, c *servertest.Cluster, _ *history) {
		for _, n := range c.Nodes() {
			for _, err := range n.Deaths() {
				require.ErrorIs(t, err, incarnation.ErrSuperseded)
				ended++
			}
		}
	}})
	require.Greater(t, ended, 6, "hardly any folder that was put back was noticed")
}

// A node whose state differs from a majority's is found within `--consistency-check-interval`; from then on it neither
// leads nor answers, until its state is replaced
func TestPromiseReplicas(t *testing.T) {
	const interval = 5 * time.Minute
	for seed := range uint64(6) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 25))
				c := servertest.New(t, servertest.Options{Nodes: 3 + 2*int(seed%2), Minted: true, Checks: interval})
				c.Leader()
				count := 0
				incr := func() {
					n := c.Nodes()[rng.IntN(len(c.Nodes()))]
					if on, _ := n.Replica().Quarantined(); on {
						require.Equal(t, protocol.ErrQuarantined.Value(), n.Do("INCR", "k"))
						return
					}
					count++
					reply := n.Do("INCR", "k")
					if on, _ := n.Replica().Quarantined(); on && reply.Str == protocol.ErrUncertain.Value().Str {
						reply = c.Leader().Do("GET", "k") // it led, and may tell no reply any more
						require.Contains(t, []string{strconv.Itoa(count - 1), strconv.Itoa(count)}, reply.Str)
						count, _ = strconv.Atoi(reply.Str)
						return
					}
					require.Equal(t, protocol.Integer(int64(count)), reply)
				}
				for range 3 {
					n := c.Nodes()[rng.IntN(len(c.Nodes()))]
					require.NoError(t, n.Replica().Corrupt(nil))
					for found := time.Now().Add(interval + time.Second); time.Now().Before(found); time.Sleep(time.Second) {
						incr()
					}
					on, frozen := n.Replica().Quarantined()
					require.True(t, on && frozen)
					require.NotEqual(t, n, c.Leader())
					n.Crash()
					n.Start()
					for range 20 {
						incr()
						time.Sleep(time.Second)
					}
					done, err := c.Leader().Checker().Repair(t.Context(), n.ID)
					require.NoError(t, err)
					require.True(t, done.Compared)
					incr()
					c.Settle()
				}
			})
		})
	}
}

// An error that clients retry blindly is sent only when the command surely was not applied
//
// The clients of all these tests hold that a living node never closes a connection, and
// that every error of the cluster is CLUSTERDOWN, TRYAGAIN or UNCERTAIN.
func TestPromiseErrors(t *testing.T) {
	protocoltest.SkipShort(t, "a simulation; TestPromiseLinearizable is one")
	outcomes := make(map[told]int)
	ordeal{
		seed: 600, clients: 12, ops: 500, pause: 100 * time.Millisecond, longest: 5 * time.Second,
		mix: mix{addToLog}, troubles: []trouble{partition, isolateStubborn, crashMost},
	}.each(t, checks{cluster: func(t *testing.T, c *servertest.Cluster, h *history) {
		time.Sleep(time.Minute) // what is still under way arrives
		content := logs(t, c)
		for _, op := range h.where(func(op *operation) bool { return op.what == appendLog }) {
			outcomes[op.told]++
			switch op.told {
			case refused:
				require.Zero(t, occurrences(content, op), "%q was applied, and its client was told that it surely was not",
					op.input.text)
			case answered:
				require.Equal(t, 1, occurrences(content, op), "%q", op.input.text)
			}
		}
	}})
	require.Len(t, outcomes, 3, "the troubles did not lead to all outcomes: %v", outcomes)
}

// Bad input gets Redis's own error; it never stops a node and never makes replicas differ
func TestPromiseBadInput(t *testing.T) {
	protocoltest.SkipShort(t, "a simulation; TestPromiseLinearizable is one")
	for seed := uint64(700); seed < 706; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
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
				// The log leads to the same state again.
				crash(c.Nodes())()
				c.Settle()
			})
		})
	}
}
