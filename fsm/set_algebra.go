package fsm

import (
	"math"
	"slices"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

func sinterOp(c *call) protocol.Value { return c.combine(c.args[1:], (*call).intersect) }
func sunionOp(c *call) protocol.Value { return c.combine(c.args[1:], (*call).unite) }
func sdiffOp(c *call) protocol.Value  { return c.combine(c.args[1:], (*call).subtract) }

func sinterstoreOp(c *call) protocol.Value { return c.combineAndStore((*call).intersect) }
func sunionstoreOp(c *call) protocol.Value { return c.combineAndStore((*call).unite) }
func sdiffstoreOp(c *call) protocol.Value  { return c.combineAndStore((*call).subtract) }

// combination makes a new set of some sets, of which a nil one is empty.
type combination func(c *call, sets []*collection.Set) (result *collection.Set, problem protocol.Value, ok bool)

func (c *call) combine(keys []string, f combination) protocol.Value {
	sets, problem, ok := c.setsOf(keys)
	if !ok {
		return problem
	}
	result, problem, ok := f(c, sets)
	if !ok {
		return problem
	}
	return c.membersOf(result)
}

func (c *call) combineAndStore(f combination) protocol.Value {
	sets, problem, ok := c.setsOf(c.args[2:])
	if !ok {
		return problem
	}
	result, problem, ok := f(c, sets)
	if !ok {
		return problem
	}
	c.storeCollection(c.args[1], c.args[0], result, classSet)
	return protocol.Integer(int64(result.Len()))
}

// storeCollection puts v, which the command made, in the place of whatever key has. Without elements, key
// goes.
func (c *call) storeCollection(key, event string, v keyspace.Collection, class event.Classes) {
	if v.Len() > 0 {
		c.store(c.db, keyspace.NewCollection(c.hashOf(key), key, v, never, c.st.generation))
		c.notify(class, event, key)
		return
	}
	c.removeTarget(key)
}

// removeTarget removes key, if it is there, since a command with an empty result would store the result there.
func (c *call) removeTarget(key string) {
	if it := c.findIn(c.db, key); it != nil {
		c.remove(it)
		c.notify(classGeneric, "del", key)
	}
}

// setsOf looks for the sets of keys, nil for a missing one.
func (c *call) setsOf(keys []string) (sets []*collection.Set, problem protocol.Value, ok bool) {
	sets = make([]*collection.Set, len(keys))
	for i, key := range keys {
		s, there, ok := look[*collection.Set](c, key)
		if !ok {
			return nil, errWrongType, false
		}
		if there {
			sets[i] = s
		}
	}
	return sets, problem, true
}

// intersect is what all sets have, in the form of the smallest.
func (c *call) intersect(sets []*collection.Set) (result *collection.Set, problem protocol.Value, ok bool) {
	if slices.Contains(sets, nil) {
		return collection.NewIntSet(), problem, true
	}
	sets = bySize(sets)
	result = collection.NewLike(sets[0])
	each := changesIn(sets[0], 1, 0) + sets[0].Bytes()/int64(sets[0].Len())
	problem, ok = c.eachShared(sets, math.MaxInt64, each, func(name string) { result.Add(name) })
	result.TryInts()
	return result, problem, ok
}

// eachShared calls f for at most so many members that all sets have. The smallest set is the first. f costs
// work for each.
func (c *call) eachShared(sets []*collection.Set, limit, work int64, f func(name string)) (problem protocol.Value,
	ok bool,
) {
	work += elementWork
	for _, s := range sets[1:] {
		work += searchesIn(s, 1)
	}
	search, problem, ok := c.searchShared(int64(sets[0].Len()), limit, work)
	if !ok {
		return problem, false
	}
	sets[0].All(func(name string) bool {
		if problem, ok = search.next(); !ok {
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

// bySize is sets with the smallest first.
func bySize(sets []*collection.Set) []*collection.Set {
	sets = slices.Clone(sets)
	slices.SortStableFunc(sets, func(a, b *collection.Set) int { return a.Len() - b.Len() })
	return sets
}

// unite is what any of the sets has.
func (c *call) unite(sets []*collection.Set) (result *collection.Set, problem protocol.Value, ok bool) {
	var work int64
	for _, s := range sets {
		if s != nil {
			work += int64(s.Len())*(elementWork+searchWork) + s.Bytes()
		}
	}
	if problem, ok = c.charge(work); !ok {
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

// subtract is what the first set has and no other.
func (c *call) subtract(sets []*collection.Set) (result *collection.Set, problem protocol.Value, ok bool) {
	result = collection.NewIntSet()
	first := sets[0]
	if first == nil {
		return result, problem, true
	}
	others := slices.DeleteFunc(slices.Clone(sets[1:]), func(s *collection.Set) bool { return s == nil })
	work := int64(elementWork + searchWork)
	for _, s := range others {
		work += searchesIn(s, 1)
	}
	if problem, ok = c.charge(int64(first.Len())*work + first.Bytes()); !ok {
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

func sintercardOp(c *call) protocol.Value {
	n, ok := protocol.ParseInt(c.args[1])
	switch {
	case !ok || n < 1:
		return errNumKeys
	case n > int64(len(c.args)-2):
		return protocol.Err("Number of keys can't be greater than number of args")
	}
	limit := int64(0)
	keys, options := c.args[2:2+n], c.args[2+n:]
	for ; len(options) > 0; options = options[2:] {
		if len(options) < 2 || !isWord(options[0], "LIMIT") {
			return errSyntax
		}
		if limit, ok = protocol.ParseInt(options[1]); !ok || limit < 0 {
			return protocol.Err("LIMIT can't be negative")
		}
	}
	if limit == 0 {
		limit = math.MaxInt64
	}
	sets, problem, ok := c.setsOf(keys)
	switch {
	case !ok:
		return problem
	case slices.Contains(sets, nil):
		return zero
	}
	var count int64
	problem, ok = c.eachShared(bySize(sets), limit, 0, func(string) { count++ })
	if !ok {
		return problem
	}
	return protocol.Integer(count)
}
