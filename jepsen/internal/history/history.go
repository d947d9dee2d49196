// Package history records what clients did and what was answered.
//
// It promises: every operation has an invocation and a completion time on one
// monotonic clock (nanoseconds since the run began); an operation whose outcome
// a client does not know is [Info] and never anything else; and a history that
// was written as JSON lines is read back equal. Beside the JSON lines the package writes
// EDN in the form that Jepsen's own checkers read.
//
// Verdicts are package checker's. The package does not map replies to
// outcomes: that is package wire.
//
// Workloads call [Recorder]; checkers and reports read the [History].
// Start reading at [Op].
package history

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"
)

// Outcome is what a client knows of an operation, in Jepsen's words.
type Outcome string

const (
	// OK: done, with the outputs recorded.
	OK Outcome = "ok"
	// Fail: surely not done, and never will be.
	Fail Outcome = "fail"
	// Info: perhaps done, perhaps done later, or never.
	Info Outcome = "info"
)

// Op is one operation of one client.
type Op struct {
	Index int `json:"index"` // in the order of invocation
	// Process is a logical client. A process has at most one operation under way, and
	// ends with the first whose outcome is unknown, as Jepsen demands.
	Process int    `json:"process"`
	Node    string `json:"node,omitempty"` // that was asked; empty: the harness itself
	F       string `json:"f"`
	Key     string `json:"key,omitempty"`
	// Input and Output are the operation's numbers; their meaning belongs to F and
	// is written beside the workload.
	Input  []int64 `json:"input,omitempty"`
	Output []int64 `json:"output,omitempty"`
	// Txn is the list of small steps of a transaction, with what was read.
	Txn []Micro `json:"txn,omitempty"`
	// Pipe numbers the pipeline an operation was part of; 0: no pipeline.
	Pipe    int     `json:"pipe,omitempty"`
	Outcome Outcome `json:"outcome"`
	Error   string  `json:"error,omitempty"`
	// Call and Return are nanoseconds since the run began. Return of an [Info] is
	// when the client gave up; it bounds nothing.
	Call   int64 `json:"call"`
	Return int64 `json:"return"`
}

// Micro is a step of a transaction: "append" Value to the list Key, or "r", which
// read List (nil while unknown).
type Micro struct {
	F     string  `json:"f"`
	Key   string  `json:"key"`
	Value int64   `json:"value,omitempty"`
	List  []int64 `json:"list"`
}

// In is the i-th input, 0 when there is none.
func (o *Op) In(i int) int64 { return at(o.Input, i) }

// Out is the i-th output, 0 when there is none.
func (o *Op) Out(i int) int64 { return at(o.Output, i) }

func at(ns []int64, i int) int64 {
	if i < len(ns) {
		return ns[i]
	}
	return 0
}

// String is the operation as reports show it.
func (o *Op) String() string {
	s := fmt.Sprintf("#%d p%d %s %s%v", o.Index, o.Process, o.F, o.Key, o.Input)
	if o.Txn != nil {
		s = fmt.Sprintf("#%d p%d %s %v", o.Index, o.Process, o.F, o.Txn)
	}
	if o.Outcome == OK {
		s += fmt.Sprintf(" -> %v", o.Output)
	} else {
		s += fmt.Sprintf(" %s (%s)", o.Outcome, o.Error)
	}
	if o.Node != "" {
		s += " at " + o.Node
	}
	return fmt.Sprintf("%s [%.6f, %.6f]", s, time.Duration(o.Call).Seconds(), time.Duration(o.Return).Seconds())
}

// Fault is a time in which something was broken on purpose.
type Fault struct {
	Name   string `json:"name"`
	Detail string `json:"detail,omitempty"` // the nodes that were hit
	Start  int64  `json:"start"`            // nanoseconds since the run began
	Stop   int64  `json:"stop"`
	Nature
}

// Nature is what checkers need to know of a fault beside its time.
type Nature struct {
	Group string `json:"group,omitempty"` // what --nemesis calls it and its like
	// NoExcuse is set if the fault must not delay anything, such as one of a wall clock. Drift has rates of clocks.
	NoExcuse bool `json:"noExcuse,omitempty"`
	// Drift is the maximum fraction by which a clock is too fast or too slow.
	Drift float64 `json:"drift,omitempty"`
}

// Drift is the worst of the faults'.
func (h *History) Drift() float64 {
	worst := 0.0
	for _, f := range h.Faults {
		worst = max(worst, f.Drift)
	}
	return worst
}

// History is a whole run: the operations in the order of invocation.
type History struct {
	Ops    []Op
	Faults []Fault
	// Silences are times without an answer to any client, in the whole history of which this one may be a part.
	// [History.Filter] sets them, and they are not written to files.
	Silences []Span
}

// Span is from one time to another, in nanoseconds on the run's clock.
type Span struct{ Start, Stop int64 }

// ByKey splits the operations by key; keys in order of first use.
func (h *History) ByKey() iter.Seq2[string, []Op] {
	var keys []string
	byKey := map[string][]Op{}
	for _, o := range h.Ops {
		if _, seen := byKey[o.Key]; !seen {
			keys = append(keys, o.Key)
		}
		byKey[o.Key] = append(byKey[o.Key], o)
	}
	return func(yield func(string, []Op) bool) {
		for _, key := range keys {
			if !yield(key, byKey[key]) {
				return
			}
		}
	}
}

// Count returns the number of operations with that outcome.
func (h *History) Count(outcome Outcome) int {
	n := 0
	for i := range h.Ops {
		if h.Ops[i].Outcome == outcome {
			n++
		}
	}
	return n
}

// Filter returns the history of the operations for which keep is true, with the silences of the whole history.
func (h *History) Filter(keep func(*Op) bool) *History {
	out := &History{Faults: h.Faults, Silences: h.silences()}
	for i := range h.Ops {
		if keep(&h.Ops[i]) {
			out.Ops = append(out.Ops, h.Ops[i])
		}
	}
	return out
}

// Validate checks what the recorder promises, for histories that come from a
// file or are made by hand: times in order, one operation at a time per process.
func (h *History) Validate() error {
	last := map[int]*Op{}
	byCall := slices.Clone(h.Ops)
	slices.SortStableFunc(byCall, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	for i := range byCall {
		o := &byCall[i]
		switch o.Outcome {
		case OK, Fail, Info:
		default:
			return fmt.Errorf("operation %d has outcome %q", o.Index, o.Outcome)
		}
		if o.Return < o.Call {
			return fmt.Errorf("operation %d returns before its call", o.Index)
		}
		if p := last[o.Process]; p != nil {
			if p.Outcome == Info {
				return fmt.Errorf("process %d goes on after its operation %d had no known outcome", o.Process, p.Index)
			}
			if p.Return > o.Call {
				return fmt.Errorf("process %d has operations %d and %d at the same time", o.Process, p.Index, o.Index)
			}
		}
		last[o.Process] = o
	}
	return nil
}

// minSilence is shorter than any election takes, and longer than answers usually do.
const minSilence = int64(250 * time.Millisecond)

// silences returns the times in which clients waited for answers and no operation succeeded.
func (h *History) silences() []Span {
	var good []int64
	for i := range h.Ops {
		if o := &h.Ops[i]; o.Outcome == OK && o.Node != "" {
			good = append(good, o.Return)
		}
	}
	slices.Sort(good)
	// earliest[i] is the first call of the operations from the i-th return on: a long history has thousands of gaps.
	byReturn := slices.Clone(h.Ops)
	slices.SortFunc(byReturn, func(a, b Op) int { return cmp.Compare(a.Return, b.Return) })
	earliest := make([]int64, len(byReturn)+1)
	earliest[len(byReturn)] = math.MaxInt64
	for i := len(byReturn) - 1; i >= 0; i-- {
		earliest[i] = min(earliest[i+1], byReturn[i].Call)
	}
	var spans []Span
	for i := 1; i < len(good); i++ {
		from, to := good[i-1], good[i]
		if to-from < minSilence {
			continue
		}
		first, _ := slices.BinarySearchFunc(byReturn, from+1, func(o Op, t int64) int { return cmp.Compare(o.Return, t) })
		asked := min(to, max(from, earliest[first]))
		if to-asked >= minSilence {
			spans = append(spans, Span{asked, to})
		}
	}
	return spans
}
