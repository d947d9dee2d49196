//go:build trace

package model

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server"
	"github.com/holdfast/holdfast/server/raftnode"
	"github.com/holdfast/holdfast/server/servertest"
	"github.com/holdfast/holdfast/server/store"
)

// recorder records the steps of all nodes, in the order in which they happened.
type recorder struct {
	mu    sync.Mutex
	steps []raftnode.TraceEvent
	dead  map[string]uint64 // steps of a node's lives up to this one are ignored
	lives map[string]uint64
}

func record() *recorder {
	r := &recorder{dead: map[string]uint64{}, lives: map[string]uint64{}}
	raftnode.TraceTo(r.take)
	return r
}

func (r *recorder) take(e raftnode.TraceEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Life <= r.dead[e.Node] {
		return
	}
	r.lives[e.Node] = e.Life
	r.steps = append(r.steps, e)
}

// crash ends a node. The steps of its goroutines are not recorded from then on, since they reach neither another node
// nor the disk.
func (r *recorder) crash(n *servertest.Node, end func()) {
	r.mu.Lock()
	r.dead[n.ID] = r.lives[n.ID]
	r.mu.Unlock()
	end()
}

// drama runs a cluster in virtual time, and returns its steps. Clients write while, as the seed says, nodes are killed,
// networks and power are cut, and snapshots are taken. With an odd seed the nodes are far apart, so several entries are
// in flight.
func drama(t *testing.T, seed uint64) (steps []raftnode.TraceEvent) {
	synctest.Test(t, func(t *testing.T) {
		r := record()
		c := servertest.New(t, servertest.Options{Tune: func(c *server.Config) {
			c.SnapshotThreshold, c.SnapshotInterval, c.TrailingLogs = 1<<20, time.Hour, 2
		}})
		rng := rand.New(rand.NewPCG(seed, 25))
		down := map[*servertest.Node]bool{}
		far := seed%2 == 1
		heal := func() {
			c.Net.Heal()
			for _, a := range c.Nodes() {
				for _, b := range c.Nodes() {
					if far && a != b {
						c.Net.Delay(a.Name, b.Name, 3*raftnode.FarAway)
					}
				}
			}
		}
		write := func(n int) {
			var writers sync.WaitGroup
			defer writers.Wait()
			for i := range n {
				leader := c.Leader()
				if down[leader] {
					continue
				}
				writers.Go(func() { leader.Do("SET", fmt.Sprint("k", i), "v") })
				if far {
					time.Sleep(raftnode.FarAway)
				} else {
					writers.Wait()
				}
			}
		}
		any := func() *servertest.Node { return c.Nodes()[rng.IntN(3)] }
		heal()
		write(2)
		if far {
			time.Sleep(5 * time.Second) // for the leader to notice
		}
		for range 12 {
			for n := range down {
				delete(down, n)
				n.Start()
			}
			heal()
			write(1 + rng.IntN(4))
			n := any()
			switch rng.IntN(8) {
			case 0:
				n = c.Leader()
				r.crash(n, n.Crash)
				down[n] = true
			case 1:
				r.crash(n, func() { n.PowerCut(rng.Uint64()) })
				down[n] = true
			case 2:
				n = c.Leader()
				c.Net.Isolate(n.Name)
				go n.Do("SET", "lost", "v")
				time.Sleep(3 * time.Second)
			case 3:
				_ = n.Replica().TakeSnapshot()
			case 4:
				r.crash(n, n.Crash)
				down[n] = true
				write(5)
				for _, other := range c.Nodes() {
					if !down[other] {
						_ = other.Replica().TakeSnapshot()
					}
				}
			case 5:
				_ = c.Leader().Transfer()
			case 6:
				c.Net.Isolate(n.Name)
			case 7:
				c.Leader().Faults.Inject(store.Fault{Op: store.OpStoreLogs, Delay: 5 * time.Millisecond, Count: 3})
			}
			write(1 + rng.IntN(3))
		}
		for n := range down {
			n.Start()
		}
		c.Net.Heal()
		c.Settle()
		r.mu.Lock()
		defer r.mu.Unlock()
		steps = slices.Clone(r.steps)
		for _, n := range c.Nodes() {
			r.dead[n.ID] = 1 << 62
		}
	})
	return steps
}

// traceData returns the steps as a TLA+ module.
func traceData(steps []raftnode.TraceEvent) string {
	var b strings.Builder
	b.WriteString("---- MODULE TraceData ----\nEXTENDS Sequences\nCONSTANTS n1, n2, n3\nTrace == <<\n")
	for i, e := range steps {
		other := e.Other
		if other == "" {
			other = e.Node
		}
		terms := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(e.Terms)), ", "), "[]")
		fmt.Fprintf(&b, "[e |-> %q, n |-> %s, o |-> %s, t |-> %d, i |-> %d, f |-> %d, p |-> %d, s |-> <<%s>>, z |-> %d]",
			e.Kind, e.Node, other, e.Term, e.Index, e.From, e.Prev, terms, e.Snap)
		if i < len(steps)-1 {
			b.WriteString(",\n")
		}
	}
	b.WriteString("\n>>\n====\n")
	return b.String()
}

// allows reports whether the model allows all steps. If not, taken is the number of steps that it allows.
func allows(t *testing.T, steps []raftnode.TraceEvent) (all bool, taken int, text string) {
	t.Helper()
	most := uint64(1)
	for _, e := range steps {
		most = max(most, e.Term)
	}
	bounds := settings{
		"n1": "n1", "n2": "n2", "n3": "n3", "MaxTerm": fmt.Sprint(most), "MaxLen": "100000", "MaxCrash": "100000",
		"MaxSnapshot": "100000", "Lag": "1", "MaxNotify": "1", "Refusals": "1",
	}
	config := configuration("Log", bounds, "")
	config = strings.NewReplacer(
		"SPECIFICATION Spec", "SPECIFICATION TraceSpec", "CHECK_DEADLOCK FALSE", "CHECK_DEADLOCK TRUE",
		"SYMMETRY Symmetry\n", "",
	).Replace(config)
	v, text, err := explore(t, "TraceLog", config, map[string]string{"TraceData.tla": traceData(steps)})
	if err == nil && v.violated == "" {
		return true, len(steps), text
	}
	return false, strings.Count(text, "\nState ") - 1, text
}

// TestTraces shows that the model allows what nodes do in runs in virtual time.
func TestTraces(t *testing.T) {
	needTLC(t)
	seeds := uint64(3)
	if os.Getenv(sizeEnv) == "large" {
		seeds = 40
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			steps := drama(t, seed)
			keep(t, fmt.Sprintf("trace-%d.jsonl", seed), steps)
			kinds := map[string]int{}
			for _, e := range steps {
				kinds[e.Kind]++
			}
			t.Log(len(steps), "steps", kinds)
			all, taken, text := allows(t, steps)
			if !all {
				refused := steps[max(0, min(taken, len(steps)-1))]
				require.Fail(t, "refused", "step %d, %+v\n%s", taken+1, refused, tail(text, 4000))
			}
		})
	}
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// keep writes the steps as lines of JSON to the folder in HOLDFAST_TRACES.
func keep(t *testing.T, name string, steps []raftnode.TraceEvent) {
	t.Helper()
	dir := os.Getenv("HOLDFAST_TRACES")
	if dir == "" {
		return
	}
	var b strings.Builder
	for _, e := range steps {
		line, err := json.Marshal(e)
		require.NoError(t, err)
		fmt.Fprintf(&b, "%s\n", line)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(b.String()), 0o644))
}

// TestWrongTracesAreRefused shows that the model refuses a trace with a step that did not happen, or must not happen.
func TestWrongTracesAreRefused(t *testing.T) {
	needTLC(t)
	steps := drama(t, 1)
	find := func(from int, match func(raftnode.TraceEvent) bool) int {
		i := slices.IndexFunc(steps[from:], match)
		require.GreaterOrEqual(t, i, 0)
		return from + i
	}
	kind := func(kind string) func(raftnode.TraceEvent) bool {
		return func(e raftnode.TraceEvent) bool { return e.Kind == kind }
	}
	lead := find(0, kind("lead"))
	leader := steps[lead].Node
	for _, wrong := range []struct {
		name string
		make func() (wrong []raftnode.TraceEvent, at int)
	}{
		{"an acknowledgement is handed to raft before the leader's disk has the entry", func() ([]raftnode.TraceEvent, int) {
			i := find(lead, func(e raftnode.TraceEvent) bool { return e.Kind == "acknowledged" && e.Node == leader })
			early := slices.DeleteFunc(slices.Clone(steps[lead:i]), func(e raftnode.TraceEvent) bool {
				return e.Kind == "sync" && e.Node == leader
			})
			return slices.Concat(steps[:lead], early, steps[i:]), lead + len(early)
		}},
		{"a follower acknowledges what it did not store", func() ([]raftnode.TraceEvent, int) {
			i := find(lead, func(e raftnode.TraceEvent) bool { return e.Kind == "acknowledged" })
			acknowledged := steps[i]
			j := find(lead, func(e raftnode.TraceEvent) bool {
				return e.Kind == "store" && e.Node == acknowledged.Other
			})
			return slices.Delete(slices.Clone(steps), j, j+1), j
		}},
		{"two votes in a term", func() ([]raftnode.TraceEvent, int) {
			i := find(0, func(e raftnode.TraceEvent) bool { return e.Kind == "vote" && e.Other != e.Node })
			twice := steps[i]
			return slices.Insert(slices.Clone(steps), i+1, twice), i + 1
		}},
		{"an entry is applied before it is committed", func() ([]raftnode.TraceEvent, int) {
			i := find(lead, func(e raftnode.TraceEvent) bool { return e.Kind == "append" && e.Node == leader })
			end := steps[i].From + uint64(len(steps[i].Terms))
			e := raftnode.TraceEvent{Kind: "apply", Node: leader, Index: end, Term: steps[i].Terms[0]}
			return slices.Insert(slices.Clone(steps), i+1, e), i + 1
		}},
		{"a node forgets its term", func() ([]raftnode.TraceEvent, int) {
			i := find(lead, kind("start"))
			w := slices.Clone(steps)
			w[i].Term--
			return w, i
		}},
		{"a node loses what was on its disk", func() ([]raftnode.TraceEvent, int) {
			i := find(lead, func(e raftnode.TraceEvent) bool { return e.Kind == "start" && len(e.Terms) > 1 })
			w := slices.Clone(steps)
			w[i].Terms, w[i].Index = w[i].Terms[:len(w[i].Terms)-1], w[i].Index-1
			return w, i
		}},
		{"a request says more than is committed", func() ([]raftnode.TraceEvent, int) {
			i := find(lead, func(e raftnode.TraceEvent) bool { return e.Kind == "send" && len(e.Terms) > 0 })
			w := slices.Clone(steps)
			w[i].Index = w[i].From + uint64(len(w[i].Terms))
			return w, i
		}},
	} {
		t.Run(wrong.name, func(t *testing.T) {
			trace, at := wrong.make()
			all, taken, text := allows(t, trace)
			require.False(t, all)
			require.GreaterOrEqual(t, taken, at, "steps before the wrong one are refused: %s", tail(text, 4000))
			t.Logf("step %d is wrong, step %d is refused", at+1, taken+1)
		})
	}
}
