package replica_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

// Clients work on three kinds of keys.
//
// A log: APPEND adds a token that no other client adds, GET reads all. What is there in
// the end orders all that ever was, so that each history can be judged, however long.
// A counter (INCR, GET) and a register (SET, GET) are judged by porcupine.
const (
	logKey      = "log"
	counterKey  = "counter"
	registerKey = "register"
)

// input is one operation: its words are either a read of the key, or a write.
type input struct {
	key   string
	write string // the token or value; empty: a read
}

func (in input) words() []string {
	switch {
	case in.write == "":
		return []string{"GET", in.key}
	case in.key == logKey:
		return []string{"APPEND", in.key, in.write}
	case in.key == counterKey:
		return []string{"INCR", in.key}
	default:
		return []string{"SET", in.key, in.write}
	}
}

// output is what a client was told.
type output struct {
	number  int64  // of a write
	content string // of a read
	unknown bool
}

// model is a counter and a register: state and contents are strings.
var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := make(map[string][]porcupine.Operation)
		for _, op := range history {
			key := op.Input.(input).key
			byKey[key] = append(byKey[key], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, in, out any) (bool, any) {
		s, i, o := state.(string), in.(input), out.(output)
		switch {
		case i.write == "":
			return o.content == s, s
		case i.key == registerKey:
			return true, i.write
		default:
			n, _ := strconv.ParseInt("0"+s, 10, 64)
			return o.unknown || o.number == n+1, strconv.FormatInt(n+1, 10)
		}
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprint(in, out) },
}

// recorder collects what clients saw.
type recorder struct {
	start time.Time

	mu      sync.Mutex
	history []porcupine.Operation
	refused []input
}

func newRecorder() *recorder { return &recorder{start: time.Now()} }

func (r *recorder) now() int64 { return time.Since(r.start).Nanoseconds() }

// forever is when an operation returns whose end no client was told.
const forever = 1 << 62

// do runs one operation on n and records it.
func (r *recorder) do(client int, n *replicatest.Node, in input) (failed bool) {
	called := r.now()
	reply := n.Do(in.words()...)
	op := porcupine.Operation{ClientId: client, Input: in, Call: called, Return: r.now()}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !reply.IsError():
		op.Output = output{number: reply.Num, content: reply.Str}
	case in.write == "":
		return true // a read without an answer says nothing
	case protocol.OutcomeOf(reply.Str) == protocol.OutcomeNone:
		r.refused = append(r.refused, in)
		return true
	default:
		op.Output, op.Return = output{unknown: true}, forever
	}
	r.history = append(r.history, op)
	return reply.IsError()
}

// client runs operations until stop is closed.
func (r *recorder) client(id int, rng *rand.Rand, nodes []*replicatest.Node, stop <-chan struct{}) {
	n := nodes[rng.IntN(len(nodes))]
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rng.IntN(40)) * time.Millisecond):
		}
		in := input{key: logKey}
		switch rng.IntN(10) {
		case 0:
			in.key = counterKey
		case 1:
			in.key = registerKey
		}
		if rng.IntN(2) == 0 {
			in.write = fmt.Sprintf("%d.%d ", id, i)
		}
		if r.do(id, n, in) || rng.IntN(20) == 0 {
			n = nodes[rng.IntN(len(nodes))]
		}
	}
}

// check compares what clients were told with what one copy of the state could
// have told them, and with the log's final content.
func (r *recorder) check(t *testing.T, final string) {
	t.Helper()
	var logs, others []porcupine.Operation
	unknown := 0
	for _, op := range r.history {
		if op.Output.(output).unknown {
			unknown++
		}
		if op.Input.(input).key == logKey {
			logs = append(logs, op)
		} else {
			others = append(others, op)
		}
	}
	t.Logf("%d operations, %d refused, %d uncertain", len(r.history), len(r.refused), unknown)
	for _, in := range r.refused {
		if in.key == logKey && strings.Contains(" "+final, " "+in.write) {
			t.Errorf("token %q is there although it was refused", in.write)
		}
	}
	checkLog(t, logs, final)
	switch result := porcupine.CheckOperationsTimeout(model, others, time.Minute); result {
	case porcupine.Illegal:
		t.Error("counter and register are not linearizable")
	case porcupine.Unknown:
		t.Log("porcupine did not finish with counter and register")
	}
}

// checkLog judges operations on the log. Its final content gives every write a
// place; every read saw the log up to some place. The history is linearizable
// if that order does not contradict time: an operation that began after another had ended
// must not have an earlier place.
func checkLog(t *testing.T, ops []porcupine.Operation, final string) {
	t.Helper()
	place := make(map[string]int) // of a token, from 1
	length := []int{0}            // of the log after so many tokens
	for token := range strings.SplitAfterSeq(final, " ") {
		if token == "" {
			continue
		}
		if place[token] != 0 {
			t.Errorf("token %q is there twice", token)
		}
		place[token] = len(length)
		length = append(length, length[len(length)-1]+len(token))
	}
	type event struct {
		at   int64
		end  bool
		op   *porcupine.Operation
		seen int // the place that op stands for
	}
	var events []event
	for i := range ops {
		op := &ops[i]
		in, out := op.Input.(input), op.Output.(output)
		seen := place[in.write]
		switch {
		case in.write == "":
			if !strings.HasPrefix(final, out.content) {
				t.Errorf("read of what never was: %.60q…", out.content)
				continue
			}
			seen, _ = slices.BinarySearch(length, len(out.content))
		case out.unknown:
			if seen == 0 {
				continue // it never took effect
			}
		case seen == 0 || length[seen] != int(out.number):
			t.Errorf("token %q is at place %d, its client was told length %d", in.write, seen, out.number)
			continue
		}
		events = append(events, event{op.Call, false, op, seen}, event{op.Return, true, op, seen})
	}
	// Of a call and a return at the same instant, neither is known to be first.
	slices.SortFunc(events, func(a, b event) int {
		if c := cmp.Compare(a.at, b.at); c != 0 || a.end == b.end {
			return c
		}
		if a.end {
			return 1
		}
		return -1
	})
	known := 0 // the furthest place of any operation that has ended
	for _, e := range events {
		if e.end {
			known = max(known, e.seen)
			continue
		}
		if write := e.op.Input.(input).write != ""; e.seen < known || write && e.seen == known {
			t.Errorf("client %d did %v and was at place %d, when place %d was known already", e.op.ClientId, e.op.Input, e.seen,
				known)
		}
	}
}
