package checker

import (
	"cmp"
	"math"
	"slices"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// Increments checks counters to which every operation adds 1. The returned sums must be all different, and grow with
// time and along a pipeline. No acknowledged addition may be missing, and no sum may exceed the number of requested
// additions.
//
// Increments judges a whole history at once, while [Counter] judges one key, and says in words what is wrong.
func Increments(h *history.History) Result {
	r := newResult("increments", h.Count(history.OK))
	for key, ops := range h.ByKey() {
		findReused(r, key, ops)
		findBackwards(r, key, ops)
		findOutOfPipe(r, key, ops)
	}
	return *r
}

func findReused(r *Result, key string, ops []history.Op) {
	seen := map[int64]*history.Op{}
	for i := range ops {
		o := &ops[i]
		if o.F != "add" || o.Outcome != history.OK {
			continue
		}
		if p := seen[o.Out(0)]; p != nil {
			r.find("%s: %d was handed out twice: %s, and %s", key, o.Out(0), p, o)
		}
		seen[o.Out(0)] = o
	}
}

// moment is the beginning or the end of an operation.
type moment struct {
	at  int64
	end bool
	op  *history.Op
}

// moments returns the beginnings and ends of operations in order of time. Operations of which one ends and another
// begins at the same instant overlap.
func moments(ops []history.Op) []moment {
	ms := make([]moment, 0, 2*len(ops))
	for i := range ops {
		o := &ops[i]
		if o.Outcome == history.Fail {
			continue
		}
		end := o.Return
		if o.Outcome == history.Info {
			end = math.MaxInt64
		}
		ms = append(ms, moment{o.Call, false, o}, moment{end, true, o})
	}
	slices.SortStableFunc(ms, func(a, b moment) int {
		if c := cmp.Compare(a.at, b.at); c != 0 || a.end == b.end {
			return c
		}
		if a.end {
			return 1
		}
		return -1
	})
	return ms
}

func findBackwards(r *Result, key string, ops []history.Op) {
	var (
		largest int64                     // reply so far
		source  *history.Op               // the operation with that reply
		asked   int64                     // additions invoked so far
		floor   = map[*history.Op]int64{} // largest, when the operation began
		because = map[*history.Op]*history.Op{}
	)
	for _, m := range moments(ops) {
		o := m.op
		switch {
		case !m.end:
			floor[o], because[o] = largest, source
			if o.F == "add" {
				asked++
			}
		case o.Outcome != history.OK:
		default:
			least := floor[o]
			if o.F == "add" {
				least++
			}
			if o.Out(0) < least {
				r.find("%s: %s, though before it began: %s", key, o, because[o])
			}
			if o.Out(0) > asked {
				r.find("%s: %s, though only %d additions had been asked for", key, o, asked)
			}
			if o.Out(0) > largest {
				largest, source = o.Out(0), o
			}
		}
	}
}

func findOutOfPipe(r *Result, key string, ops []history.Op) {
	last := map[int]*history.Op{}
	for i := range ops {
		o := &ops[i]
		if o.Pipe == 0 || o.F != "add" || o.Outcome != history.OK {
			continue
		}
		if p := last[o.Pipe]; p != nil && p.Out(0) >= o.Out(0) {
			r.find("%s: out of order within a pipeline: %s, then %s", key, p, o)
		}
		last[o.Pipe] = o
	}
}
