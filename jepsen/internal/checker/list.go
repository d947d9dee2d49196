package checker

import (
	"hash/fnv"
	"maps"
	"slices"
	"strconv"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// List checks lists that only grow.
//
//	append    value -> [the number of values after it]
//	read-list       -> the values
//
// Every read must be a prefix of the longest read. It must have each value whose append returned before the read began,
// at the position of the append's reply, no value of a failed append, and no value twice.
func List(h *history.History) Result {
	r := newResult("list", h.Count(history.OK))
	for key, ops := range h.ByKey() {
		checkList(r, key, ops)
	}
	return *r
}

func checkList(r *Result, key string, ops []history.Op) {
	var longest *history.Op
	for i := range ops {
		o := &ops[i]
		if o.F == "read-list" && o.Outcome == history.OK && (longest == nil || len(o.Output) > len(longest.Output)) {
			longest = o
		}
	}
	if longest == nil {
		return
	}
	place := map[int64]int{} // counted from 1
	for i, v := range longest.Output {
		if place[v] != 0 {
			r.find("%s: %d is there twice: %s", key, v, longest)
		}
		place[v] = i + 1
	}
	checkAppends(r, key, ops, place, longest)
	checkReads(r, key, ops, place, longest)
}

func checkAppends(r *Result, key string, ops []history.Op, place map[int64]int, longest *history.Op) {
	asked := map[int64]bool{}
	for i := range ops {
		o := &ops[i]
		if o.F != "append" {
			continue
		}
		asked[o.In(0)] = true
		at := place[o.In(0)]
		switch {
		case o.Outcome == history.Fail && at > 0:
			r.find("%s: what failed is there: %s in %s", key, o, longest)
		case o.Outcome != history.OK:
		case at == 0 && (o.Return < longest.Call || o.Out(0) <= int64(len(longest.Output))):
			r.find("%s: lost: %s is not in %s", key, o, longest)
		case at != 0 && int64(at) != o.Out(0):
			r.find("%s: %s, but it stands at %d in %s", key, o, at, longest)
		}
	}
	for _, v := range longest.Output {
		if !asked[v] {
			r.find("%s: no client appended %d, which is in %s", key, v, longest)
		}
	}
}

// checkReads checks that no operation sees a shorter list than any that was read or acknowledged before it began.
func checkReads(r *Result, key string, ops []history.Op, place map[int64]int, longest *history.Op) {
	seen, source := 0, (*history.Op)(nil)
	floor, because := map[*history.Op]int{}, map[*history.Op]*history.Op{}
	for _, m := range moments(ops) {
		o := m.op
		if !m.end {
			floor[o], because[o] = seen, source
			continue
		}
		if o.Outcome != history.OK {
			continue
		}
		size := len(o.Output)
		if o.F == "append" {
			size = place[o.In(0)]
			if size > 0 && size <= floor[o] {
				r.find("%s: %s took a place before what was there: %s", key, o, because[o])
			}
		} else {
			if !slices.Equal(o.Output, longest.Output[:size]) {
				r.find("%s: %s is not the beginning of %s", key, o, longest)
			}
			if size < floor[o] {
				r.find("%s: stale: %s, though before it began: %s", key, o, because[o])
			}
		}
		if size > seen {
			seen, source = size, o
		}
	}
}

// lists is the state of a group of keys: the list of each. It is immutable.
type lists map[string][]int64

// Transactions is a group of lists, which each transaction reads and appends to at one instant. The operation's key
// names the group; its steps name the lists.
//
// A transaction is one operation on the whole group, so the model decides strict serializability.
func Transactions() porcupine.Model {
	return porcupine.Model{
		Init:              func() any { return lists{} },
		Step:              stepTransaction,
		Equal:             func(a, b any) bool { return maps.EqualFunc(a.(lists), b.(lists), slices.Equal[[]int64]) },
		Hash:              hashLists,
		DescribeOperation: describe,
	}
}

func stepTransaction(state, input, _ any) (bool, any) {
	group, o := state.(lists), input.(*history.Op)
	copied := false
	for _, m := range o.Txn {
		if m.F == "r" {
			if o.Outcome == history.OK && !slices.Equal(m.List, group[m.Key]) {
				return false, state
			}
			continue
		}
		if !copied {
			group, copied = maps.Clone(group), true
		}
		group[m.Key] = append(slices.Clip(group[m.Key]), m.Value)
	}
	return true, group
}

func hashLists(state any) uint64 {
	group := state.(lists)
	h := fnv.New64a()
	for _, key := range sortedKeys(group) {
		h.Write([]byte(key))
		for _, v := range group[key] {
			h.Write(strconv.AppendInt([]byte{' '}, v, 10))
		}
	}
	return h.Sum64()
}

// GuardedSet checks a set that holders of a lock change: a holder reads it, adds an element and writes the set back.
//
//	add  element, token -> [] written; fail: the resource refused the token
//	final               -> the elements at the end
//
// Each element whose write was accepted must be in the set at the end. If one is missing, a client that no longer held
// the lock has overwritten it.
func GuardedSet(h *history.History) Result {
	r := newResult("guarded set", h.Count(history.OK))
	for key, ops := range h.ByKey() {
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

// Tokens checks fencing tokens: each is given to one owner only, and a grant that began after another had ended has the
// larger token. Tokens reads the operations of [FencedLock].
func Tokens(h *history.History) Result {
	r := newResult("tokens", countGrants(h))
	for key, ops := range h.ByKey() {
		var grants []history.Op
		for _, o := range ops {
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
