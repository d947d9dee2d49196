package checker

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// searchLimit bounds the search of one key. Workloads keep keys short, so that a search takes milliseconds. One that
// takes this long is reported as unknown.
const searchLimit = 30 * time.Second

// Functions has the operations of a model.
type Functions struct {
	// Writes change the state.
	Writes []string
	// Reads do not change the state. One with an unknown outcome is left out, as it need not have taken place.
	Reads []string
	// decide, if set, judges one key exactly and faster than a search. If it returns Unknown, the search judges.
	decide func([]porcupine.Operation) porcupine.CheckResult
}

func (f Functions) judge(model porcupine.Model, ops []porcupine.Operation) porcupine.CheckResult {
	if f.decide != nil {
		if verdict := f.decide(ops); verdict != porcupine.Unknown {
			return verdict
		}
	}
	return porcupine.CheckOperationsTimeout(model, ops, searchLimit)
}

// Linear checks each key's operations against a model; operations that the model does not know are left out.
func Linear(name string, model porcupine.Model, known Functions) Func {
	return func(h *history.History) Result {
		var searches []search
		looked := 0
		for key, ops := range h.ByKey() {
			s := search{key: key, ops: operations(ops, known)}
			looked += len(s.ops)
			searches = append(searches, s)
		}
		runSearches(model, known, searches)

		r := newResult(name, looked)
		r.Counts["keys"] = len(searches)
		worst := -1
		for i, s := range searches {
			switch s.verdict {
			case porcupine.Illegal:
				r.find("key %s: no order of its %d operations explains what its clients saw", s.key, len(s.ops))
			case porcupine.Unknown:
				if r.Verdict == Valid {
					r.Verdict = Unknown
				}
				r.Findings = append(r.Findings, fmt.Sprintf("key %s: the search took longer than %s", s.key, searchLimit))
			}
			if worst < 0 || tells(s, searches[worst]) {
				worst = i
			}
		}
		if worst >= 0 {
			r.Timeline = timeline(model, searches[worst].ops)
		}
		return *r
	}
}

// search is the work for one key.
type search struct {
	key     string
	ops     []porcupine.Operation
	verdict porcupine.CheckResult
}

// tells reports whether a's timeline is more informative than b's: one that is not valid before a valid one, the
// smaller of two that are not valid, and the larger of two valid ones.
func tells(a, b search) bool {
	if (a.verdict == porcupine.Ok) != (b.verdict == porcupine.Ok) {
		return b.verdict == porcupine.Ok
	}
	if a.verdict != porcupine.Ok {
		return len(a.ops) < len(b.ops)
	}
	return len(a.ops) > len(b.ops)
}

// runSearches judges every search, as many at a time as there are processors.
func runSearches(model porcupine.Model, known Functions, searches []search) {
	next := make(chan *search)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for s := range next {
				s.verdict = known.judge(model, s.ops)
			}
		})
	}
	for i := range searches {
		next <- &searches[i]
	}
	close(next)
	wg.Wait()
}

// operations converts a history's operations for porcupine. It omits failed operations, which had no effect. An
// operation with an unknown outcome may take effect at any later time.
func operations(ops []history.Op, known Functions) []porcupine.Operation {
	var out []porcupine.Operation
	for i := range ops {
		o := &ops[i]
		end := o.Return
		switch {
		case o.Outcome == history.Fail:
			continue
		case !slices.Contains(known.Writes, o.F) && (o.Outcome == history.Info || !slices.Contains(known.Reads, o.F)):
			continue
		case o.Outcome == history.Info:
			end = math.MaxInt64
		}
		out = append(out, porcupine.Operation{ClientId: o.Process, Input: o, Call: o.Call, Return: end})
	}
	return out
}

func timeline(model porcupine.Model, ops []porcupine.Operation) func(string) error {
	return func(path string) error {
		// Porcupine draws a row for each client, so the many processes are renumbered.
		rows := map[int]int{}
		renumbered := slices.Clone(ops)
		for i := range renumbered {
			p := renumbered[i].ClientId
			if _, ok := rows[p]; !ok {
				rows[p] = len(rows)
			}
			renumbered[i].ClientId = rows[p]
		}
		_, info := porcupine.CheckOperationsVerbose(model, renumbered, searchLimit)
		return porcupine.VisualizePath(model, info, path)
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// linearOnes decides whether a counter to which every operation adds 1 is linearizable, exactly, in n log n steps. A
// search tries the unknown additions in every order: with seventeen of them, one key took longer than searchLimit.
//
// A sum is the number of an addition, so the order is known (Gibbons and Korach, "Testing Shared Memories", SIAM
// Journal on Computing 26, 1997: histories whose reads say which write they saw). An addition without a reply may have
// any sum that is in no reply, and may end at any time. So the one that was called first gets the smallest of these
// sums. Each operation then takes place as early as possible. There is no order if that is after its end.
//
// It returns Unknown if an operation adds anything but 1.
func linearOnes(ops []porcupine.Operation) porcupine.CheckResult {
	var (
		adds    = map[int64]porcupine.Operation{} // by sum
		reads   = map[int64][]porcupine.Operation{}
		unknown []porcupine.Operation
		last    int64
	)
	for _, op := range ops {
		o := op.Input.(*history.Op)
		add := o.F == "add"
		if add && o.In(0) != 1 {
			return porcupine.Unknown
		}
		if add && o.Outcome == history.Info {
			unknown = append(unknown, op)
			continue
		}
		sum := o.Out(0)
		_, twice := adds[sum]
		switch {
		case sum < 0, add && (twice || sum == 0):
			return porcupine.Illegal
		case add:
			adds[sum] = op
		default:
			reads[sum] = append(reads[sum], op)
		}
		last = max(last, sum)
	}
	if last > int64(len(adds)+len(unknown)) {
		return porcupine.Illegal // larger than the number of additions; this also bounds the loop over sums
	}
	slices.SortStableFunc(unknown, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	return inOrder(adds, reads, unknown, last)
}

// inOrder places the additions up to the sum last, and the reads between them.
func inOrder(adds map[int64]porcupine.Operation, reads map[int64][]porcupine.Operation, unknown []porcupine.Operation,
	last int64,
) porcupine.CheckResult {
	var now int64
	for sum := int64(0); sum <= last; sum++ {
		if sum > 0 {
			add, known := adds[sum]
			if !known {
				if len(unknown) == 0 {
					return porcupine.Illegal
				}
				add, unknown = unknown[0], unknown[1:]
			}
			if now = max(now, add.Call); now > add.Return {
				return porcupine.Illegal
			}
		}
		of := now
		for _, read := range reads[sum] {
			at := max(of, read.Call)
			if at > read.Return {
				return porcupine.Illegal
			}
			now = max(now, at)
		}
	}
	return porcupine.Ok
}
