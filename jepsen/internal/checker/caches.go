package checker

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// Caches checks the caches of clients, for keys whose values only grow.
//
//	raise  value            the key has the value or a larger one
//	read          -> [value]
//	cached        -> [value] from a cache
//
// A read must not be older than any value that was acknowledged before it began. A cached value may be older by b.Late,
// and by the time of faults: a node whose disk is slow applies an entry, and invalidates the caches of its clients,
// long after the others.
func Caches(b TTLBounds) Func {
	return func(h *history.History) Result {
		r := newResult("caches", h.Count(history.OK))
		excused := excuses(h, b)
		for key, ops := range h.ByKey() {
			checkCaches(r, key, ops, int64(b.Late), excused)
		}
		return *r
	}
}

func checkCaches(r *Result, key string, ops []history.Op, late int64, excused []history.Span) {
	raises := map[int64]*history.Op{}
	var acked []*history.Op // raised the value above all that were acknowledged before
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
		// Of the newer values, the first has been acknowledged for the longest time.
		if first := slices.IndexFunc(acked, func(w *history.Op) bool { return w.In(0) > o.Out(0) }); first >= 0 {
			bound, w := int64(0), acked[first]
			if o.F == "cached" {
				bound = late + within(excused, w.Return, o.Call)
			}
			if age := o.Call - w.Return; age > bound {
				r.find("%s: stale: %s is %s older than %s", key, o, time.Duration(age), w)
				continue
			}
		}
		if o.F == "cached" {
			r.Counts["cached"]++
		}
		if w := raises[o.Out(0)]; o.Out(0) != 0 && (w == nil || w.Outcome == history.Fail) {
			r.find("%s: no client wrote that: %s", key, o)
		}
	}
}
