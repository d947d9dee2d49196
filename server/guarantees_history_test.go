package server_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// operation is what one client asked and what it was told.
type operation struct {
	client    int
	call, ret int64 // nanoseconds; no two instants of a history are the same
	input
	output
}

// input is what a client asked for.
type input struct {
	key  string
	what what
	text string        // the value or token that is written
	was  string        // the value that it must replace
	ttl  time.Duration // of a lock
}

// what is a kind of operation. Keys of one kind of data get only its own.
type what string

const (
	readRegister what = "register: read"
	writeReg     what = "register: write"
	swapRegister what = "register: swap"
	casRegister  what = "register: compare and set"
	readCounter  what = "counter: read"
	increment    what = "counter: increment"
	readLog      what = "log: read"
	appendLog    what = "log: append"
	readLock     what = "lock: read"
	acquire      what = "lock: acquire"
	extend       what = "lock: extend"
	release      what = "lock: release"
	expire       what = "lock: expire" // by nobody: see withExpiries
)

func (w what) kind() string { kind, _, _ := strings.Cut(string(w), ":"); return kind }

// output is what a client was told.
type output struct {
	told told
	text string // a value that was read or replaced; empty: there was none
	num  int64
	done bool // for what can be declined: it was not
}

// told is how much a client knows of the outcome.
type told uint8

const (
	answered told = iota
	refused       // surely not applied
	unknown
)

// history is what all clients saw. Its clock is the bubble's, and strictly
// increasing: operations in sequence have times in the same order.
type history struct {
	begun time.Time

	mu   sync.Mutex
	last int64
	ops  []operation
}

func newHistory() *history { return &history{begun: time.Now()} }

func (h *history) now() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = max(h.last+1, time.Since(h.begun).Nanoseconds())
	return h.last
}

func (h *history) add(op operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, op)
}

// where returns the operations for which condition holds, in the order in which they ended.
func (h *history) where(condition func(*operation) bool) []operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []operation
	for i := range h.ops {
		if condition(&h.ops[i]) {
			found = append(found, h.ops[i])
		}
	}
	slices.SortFunc(found, func(a, b operation) int { return cmp.Compare(a.ret, b.ret) })
	return found
}

// never is an instant after all others: an operation whose outcome is unknown may
// take effect at any time.
const never = 1 << 62

// requireLinearizable checks each key's operations: one copy of the data, to which the operations
// were applied one after the other, each between its call and its reply, must
// have answered the same. It must be called outside of the bubble, where time passes.
func (h *history) requireLinearizable(t *testing.T) {
	t.Helper()
	byKey := make(map[string][]operation)
	for _, op := range h.where(func(op *operation) bool { return op.told != refused }) {
		byKey[op.key] = append(byKey[op.key], op)
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		ops := withExpiries(settle(byKey[key]))
		model := models[ops[0].what.kind()]
		var checked []porcupine.Operation
		for _, op := range ops {
			checked = append(checked, porcupine.Operation{
				ClientId: op.client, Input: op.input, Output: op.output, Call: op.call, Return: op.ret,
			})
		}
		result, info := porcupine.CheckOperationsVerbose(model, checked, 20*time.Second)
		switch result {
		case porcupine.Ok:
			continue
		case porcupine.Unknown:
			t.Logf("too much is unknown of the %d operations on %s: not decided", len(ops), key)
			continue
		}
		path := filepath.Join(os.TempDir(), strings.NewReplacer("/", "_", ",", "").Replace(t.Name())+"_"+key+".html")
		t.Errorf("the %d operations on %s are not the history of one copy; see %s:\n%s", len(ops), key, path, tell(ops))
		_ = porcupine.VisualizePath(model, info, path)
	}
}

// tell writes operations down, for a person to read.
func tell(ops []operation) string {
	slices.SortFunc(ops, func(a, b operation) int { return cmp.Compare(a.call, b.call) })
	var b strings.Builder
	for _, op := range ops {
		fmt.Fprintf(&b, "%12v %12v  client %2d  %s\n", time.Duration(op.call), time.Duration(op.ret), op.client,
			describe(op.input, op.output))
	}
	return b.String()
}

func describe(in, out any) string {
	i, o := in.(input), out.(output)
	return fmt.Sprintf("%s %s %.20q was %.20q ttl %v: told %d, %.20q %d %v", i.what, i.key, i.text, i.was, i.ttl, o.told,
		o.text, o.num, o.done)
}

// settle bounds what is unknown by what others saw, which spares porcupine from
// trying orders that cannot be: a value that was read had been written by then.
// Values are written once only. What nobody ever saw, and nobody could miss, is left out.
func settle(ops []operation) []operation {
	seen := make(map[string]int64) // when a value was first seen
	declined := false
	for i := range ops {
		op := &ops[i]
		if op.told != answered {
			continue
		}
		declined = declined || !op.done && (op.what == casRegister || op.what == acquire)
		values := []string{op.output.text}
		if op.what == readLog {
			values = strings.SplitAfter(op.output.text, " ")
		}
		for _, v := range values {
			if first, ok := seen[v]; !ok || op.ret < first {
				seen[v] = op.ret
			}
		}
	}
	var kept []operation
	for _, op := range ops {
		if op.told == unknown {
			op.ret = never
			first, ok := seen[op.input.text]
			switch {
			case op.input.text == "": // an increment: which of them it was cannot be told
			case ok && op.what != release && op.what != extend:
				op.ret = max(first, op.call+1)
			case op.what == appendLog, op.what == writeReg && !declined:
				continue
			}
		}
		kept = append(kept, op)
	}
	return kept
}

// withExpiries adds to a lock's operations that each lease may have ended, at any
// time from when it had to last to; before, it must not have. An extension is a lease of its own.
func withExpiries(ops []operation) []operation {
	all := slices.Clone(ops)
	for i := range ops {
		op := &all[i]
		if op.what != acquire && op.what != extend {
			continue
		}
		op.input.was = fmt.Sprint(i) // the lease's number
		if op.told == unknown || op.done {
			all = append(all, operation{
				client: -1, call: op.call + op.ttl.Nanoseconds(), ret: never,
				input: input{key: op.key, what: expire, text: op.input.text, was: op.input.was},
			})
		}
	}
	return all
}

// models say what one copy of the data would answer.
var models = map[string]porcupine.Model{
	"register": {Init: func() any { return "" }, Step: stepRegister, DescribeOperation: describe},
	"counter":  {Init: func() any { return int64(0) }, Step: stepCounter, DescribeOperation: describe},
	"log":      {Init: func() any { return "" }, Step: stepLog, DescribeOperation: describe},
	"lock":     {Init: func() any { return "" }, Step: stepLock, DescribeOperation: describe},
}

func stepRegister(state, in, out any) (bool, any) {
	s, i, o := state.(string), in.(input), out.(output)
	blind := o.told == unknown
	switch i.what {
	case readRegister:
		return o.text == s, s
	case writeReg:
		return true, i.text
	case swapRegister:
		return blind || o.text == s, i.text
	default: // casRegister
		if s == i.was {
			return blind || o.done, i.text
		}
		return blind || !o.done, s
	}
}

func stepCounter(state, in, out any) (bool, any) {
	s, i, o := state.(int64), in.(input), out.(output)
	if i.what == readCounter {
		return o.num == s, s
	}
	return o.told == unknown || o.num == s+1, s + 1
}

func stepLog(state, in, out any) (bool, any) {
	s, i, o := state.(string), in.(input), out.(output)
	if i.what == readLog {
		return o.text == s, s
	}
	next := s + i.text
	return o.told == unknown || o.num == int64(len(next)), next
}

// stepLock has as state the token that holds the lock, and the number of its
// lease behind it; empty: it is free.
func stepLock(state, in, out any) (bool, any) {
	s, i, o := state.(string), in.(input), out.(output)
	blind := o.told == unknown
	token, _, _ := strings.Cut(s, "/")
	leased := i.text + "/" + i.was
	switch i.what {
	case readLock:
		return o.text == token, s
	case acquire:
		if s == "" {
			return blind || o.done, leased
		}
	case extend:
		if token == i.text {
			return blind || o.done, leased
		}
	case release:
		if token == i.text {
			return blind || o.done, ""
		}
	default: // expire
		if s == leased {
			return true, ""
		}
		return true, s
	}
	return blind || !o.done, s
}
