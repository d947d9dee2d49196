package checker

import (
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

// searchLimit bounds one key's search. Keys are kept short by the workloads, so
// that a search takes milliseconds; a search that takes this long is reported as unknown.
const searchLimit = 30 * time.Second

// Functions are the operations that a model knows.
type Functions struct {
	// Writes change something.
	Writes []string
	// Reads do not: a read with an unknown outcome is left out, as it need not have taken place.
	Reads []string
	// decide judges one key exactly where there is a quicker way than a search; Unknown asks for the search.
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
		keys, byKey := h.ByKey()
		searches := make([]search, 0, len(keys))
		looked := 0
		for _, key := range keys {
			s := search{key: key, ops: operations(byKey[key], known)}
			looked += len(s.ops)
			searches = append(searches, s)
		}
		runSearches(model, known, searches)

		r := newResult(name, looked)
		r.Counts["keys"] = len(keys)
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

// tells reports whether a's timeline is worth more than b's: a fault first, then size.
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

// operations are the operations of a history as porcupine wants them. What failed
// is left out: nothing was done. What is unknown may take effect at any later time.
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
		// Porcupine draws a row for each client, so the many processes are numbered anew.
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
