package set

import (
	"math"
	"slices"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
)

// combination computes a new set from sets. A nil set is empty.
type combination func(c *command.Call, sets []*collection.Set) (result *collection.Set, problem protocol.Value, ok bool)

func combine(c *command.Call, f combination) protocol.Value {
	sets, problem, ok := setsOf(c, c.Args[1:])
	if !ok {
		return problem
	}
	result, problem, ok := f(c, sets)
	if !ok {
		return problem
	}
	return membersOf(c, result)
}

func combineAndStore(c *command.Call, f combination) protocol.Value {
	sets, problem, ok := setsOf(c, c.Args[2:])
	if !ok {
		return problem
	}
	result, problem, ok := f(c, sets)
	if !ok {
		return problem
	}
	c.StoreCollection(c.Args[1], c.Args[0], result, event.ClassSet)
	return protocol.Integer(int64(result.Len()))
}

// setsOf returns the sets of keys, with nil for missing ones.
func setsOf(c *command.Call, keys []string) (sets []*collection.Set, problem protocol.Value, ok bool) {
	sets = make([]*collection.Set, len(keys))
	for i, key := range keys {
		s, there, ok := command.Read[*collection.Set](c, key)
		if !ok {
			return nil, command.ErrWrongType, false
		}
		if there {
			sets[i] = s
		}
	}
	return sets, problem, true
}

// intersect returns the members that all sets have. The result has the encoding of the smallest set, or of integers if
// its members allow it.
func intersect(c *command.Call, sets []*collection.Set) (result *collection.Set, problem protocol.Value, ok bool) {
	if slices.Contains(sets, nil) {
		return collection.NewIntSet(), problem, true
	}
	sets = bySize(sets)
	result = collection.NewLike(sets[0])
	each := command.ChangesIn(sets[0], 1, 0) + sets[0].Bytes()/int64(sets[0].Len())
	problem, ok = eachShared(c, sets, math.MaxInt64, each, func(name string) { result.Add(name) })
	result.TryInts()
	return result, problem, ok
}

// eachShared calls f with at most limit members that all sets have. work is the work of a call of f.
//
// Requires: the first set is the smallest.
func eachShared(c *command.Call, sets []*collection.Set, limit, work int64,
	f func(name string),
) (problem protocol.Value, ok bool) {
	work += command.ElementWork
	for _, s := range sets[1:] {
		work += command.SearchesIn(s, 1)
	}
	search, problem, ok := c.SearchShared(int64(sets[0].Len()), limit, work)
	if !ok {
		return problem, false
	}
	sets[0].All(func(name string) bool {
		if problem, ok = search.Next(); !ok {
			return false
		}
		for _, s := range sets[1:] {
			if !s.Has(name) {
				return true
			}
		}
		f(name)
		limit--
		return limit > 0
	})
	return problem, ok
}

// bySize returns sets with the smallest first.
func bySize(sets []*collection.Set) []*collection.Set {
	sets = slices.Clone(sets)
	slices.SortStableFunc(sets, func(a, b *collection.Set) int { return a.Len() - b.Len() })
	return sets
}

// unite returns the members of all sets.
func unite(c *command.Call, sets []*collection.Set) (result *collection.Set, problem protocol.Value, ok bool) {
	var work int64
	for _, s := range sets {
		if s != nil {
			work += int64(s.Len())*(command.ElementWork+command.SearchWork) + s.Bytes()
		}
	}
	if problem, ok = c.Charge(work); !ok {
		return nil, problem, false
	}
	result = collection.NewIntSet()
	for _, s := range sets {
		if s != nil {
			s.All(func(name string) bool {
				result.Add(name)
				return true
			})
		}
	}
	return result, problem, true
}

// subtract returns the members of the first set that no other set has.
func subtract(c *command.Call, sets []*collection.Set) (result *collection.Set, problem protocol.Value, ok bool) {
	result = collection.NewIntSet()
	first := sets[0]
	if first == nil {
		return result, problem, true
	}
	others := slices.DeleteFunc(slices.Clone(sets[1:]), func(s *collection.Set) bool { return s == nil })
	work := int64(command.ElementWork + command.SearchWork)
	for _, s := range others {
		work += command.SearchesIn(s, 1)
	}
	if problem, ok = c.Charge(int64(first.Len())*work + first.Bytes()); !ok {
		return nil, problem, false
	}
	first.All(func(name string) bool {
		if !slices.ContainsFunc(others, func(s *collection.Set) bool { return s.Has(name) }) {
			result.Add(name)
		}
		return true
	})
	return result, problem, true
}

func sintercardOp(c *command.Call) protocol.Value {
	n, ok := protocol.ParseInt(c.Args[1])
	switch {
	case !ok || n < 1:
		return command.ErrNumKeys
	case n > int64(len(c.Args)-2):
		return protocol.Err("Number of keys can't be greater than number of args")
	}
	limit := int64(0)
	keys, options := c.Args[2:2+n], c.Args[2+n:]
	for ; len(options) > 0; options = options[2:] {
		if len(options) < 2 || !command.IsWord(options[0], "LIMIT") {
			return command.ErrSyntax
		}
		if limit, ok = protocol.ParseInt(options[1]); !ok || limit < 0 {
			return protocol.Err("LIMIT can't be negative")
		}
	}
	if limit == 0 {
		limit = math.MaxInt64
	}
	sets, problem, ok := setsOf(c, keys)
	switch {
	case !ok:
		return problem
	case slices.Contains(sets, nil):
		return command.Zero
	}
	var count int64
	problem, ok = eachShared(c, bySize(sets), limit, 0, func(string) { count++ })
	if !ok {
		return problem
	}
	return protocol.Integer(count)
}
