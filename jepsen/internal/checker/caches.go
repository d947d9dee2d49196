package checker

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// Caches checks what clients have in caches, of keys whose values grow.
//
//	raise  value            the key has the value or a larger one
//	read          -> [value]
//	cached from   -> [value] from a cache; the client has surely heard of what was acknowledged before from
//
// A read is not older than what was acknowledged before. A cached value is not older than what the client has
// heard of, and while nothing is broken not older than a bound.
func Caches(b TTLBounds) Func {
	return func(h *history.History) Result {
		r := newResult("caches", h.Count(history.OK))
		excused := excuses(h, b)
		keys, byKey := h.ByKey()
		for _, key := range keys {
			checkCaches(r, key, byKey[key], int64(b.Late), excused)
		}
		return *r
	}
}

func checkCaches(r *Result, key string, ops []history.Op, late int64, excused []history.Span) {
	raises := map[int64]*history.Op{}
	var acked []*history.Op // that raised the value above all that was acknowledged before
	for i := range ops {
		if o := &ops[i]; o.F == "raise" {
			raises[o.In(0)] = o
			if o.Outcome == history.OK {
				acked = append(acked, o)
			}
		}
	}
	slices.SortFunc(acked, func(a, b *history.Op) int { return cmp.Compare(a.Return, b.Return) })
	highest := int64(0)
	acked = slices.DeleteFunc(acked, func(o *history.Op) bool {
		old := o.In(0) <= highest
		highest = max(highest, o.In(0))
		return old
	})
	for i := range ops {
		o := &ops[i]
		if o.Outcome != history.OK || o.F == "raise" {
			continue
		}
		from := o.Call
		if o.F == "cached" {
			r.Counts["cached"]++
			from = o.In(0)
		}
		if w := newestBefore(acked, from); w != nil && w.In(0) > o.Out(0) {
			r.find("%s: stale: %s, though it has heard of %s", key, o, w)
			continue
		}
		// The first that is newer tells most: it was acknowledged the longest ago.
		first := slices.IndexFunc(acked, func(w *history.Op) bool { return w.In(0) > o.Out(0) })
		if o.F == "cached" && first >= 0 {
			w := acked[first]
			if age := o.Call - w.Return; age > late+within(excused, w.Return, o.Call) {
				r.find("%s: %s older than %s: %s", key, time.Duration(age), w, o)
			}
		}
		if w := raises[o.Out(0)]; o.Out(0) != 0 && (w == nil || w.Outcome == history.Fail) {
			r.find("%s: nobody wrote that: %s", key, o)
		}
	}
}

// newestBefore is the newest write that was acknowledged before, nil if there is none.
func newestBefore(acked []*history.Op, before int64) *history.Op {
	n, _ := slices.BinarySearchFunc(acked, before, func(o *history.Op, t int64) int { return cmp.Compare(o.Return, t) })
	if n == 0 {
		return nil
	}
	return acked[n-1]
}
