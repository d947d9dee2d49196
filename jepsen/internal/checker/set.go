package checker

import (
	"slices"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// GuardedSet checks a set that holders of a lock change: they read it, add an element and
// write the set back.
//
//	add  element, token -> [] written; fail: the resource refused the token
//	final               -> the elements at the end
//
// Everything whose write was accepted must be there at the end: if not, a client
// that no longer held the lock wrote over it.
func GuardedSet(h *history.History) Result {
	r := newResult("guarded set", h.Count(history.OK))
	keys, byKey := h.ByKey()
	for _, key := range keys {
		ops := byKey[key]
		n := slices.IndexFunc(ops, func(o history.Op) bool { return o.F == "final" })
		if n < 0 {
			continue
		}
		final := map[int64]bool{}
		for _, v := range ops[n].Output {
			final[v] = true
		}
		for i := range ops {
			o := &ops[i]
			if o.F != "add" {
				continue
			}
			r.Counts[string("adds "+o.Outcome)]++
			switch {
			case o.Outcome == history.OK && !final[o.In(0)]:
				r.Counts["overwritten"]++
				r.find("%s: overwritten by a former holder: %s", key, o)
			case o.Outcome == history.Fail && final[o.In(0)]:
				r.find("%s: what was refused is there: %s", key, o)
			}
		}
	}
	return *r
}

// Tokens checks fencing tokens: each is given to a single owner, and a grant that began after
// another had ended carries the larger token. Tokens reads the operations of [FencedLock].
func Tokens(h *history.History) Result {
	r := newResult("tokens", countGrants(h))
	keys, byKey := h.ByKey()
	for _, key := range keys {
		var grants []history.Op
		for _, o := range byKey[key] {
			if o.F == "acquire" && o.Outcome == history.OK && o.Out(0) == 1 {
				grants = append(grants, o)
			}
		}
		findReusedTokens(r, key, grants)
	}
	return *r
}

func findReusedTokens(r *Result, key string, grants []history.Op) {
	seen := map[int64]*history.Op{}
	var largest int64
	var source *history.Op
	floor, because := map[*history.Op]int64{}, map[*history.Op]*history.Op{}
	for _, m := range moments(grants) {
		o := m.op
		if !m.end {
			floor[o], because[o] = largest, source
			continue
		}
		token := o.Out(1)
		if p := seen[token]; p != nil {
			r.find("%s: token %d was given twice: %s, and %s", key, token, p, o)
		} else if token <= floor[o] {
			r.find("%s: token %d of %s is not larger than the token of %s", key, token, o, because[o])
		}
		seen[token] = o
		if token > largest {
			largest, source = token, o
		}
	}
}
