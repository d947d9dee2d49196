package zset

import (
	"math"
	"slices"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
)

// scoredSource is an input of a set operation: a set, a sorted set, or a missing key. The members of a set have the
// score 1.
type scoredSource struct {
	set    *collection.Set
	sorted *collection.SortedSet
	weight float64
}

func (s *scoredSource) len() int {
	switch {
	case s.sorted != nil:
		return s.sorted.Len()
	case s.set != nil:
		return s.set.Len()
	}
	return 0
}

func (s *scoredSource) score(member string) (score float64, ok bool) {
	switch {
	case s.sorted != nil:
		return s.sorted.Score(member)
	case s.set != nil:
		return 1, s.set.Has(member)
	}
	return 0, false
}

func (s *scoredSource) all(f func(member string, score float64) bool) {
	switch {
	case s.sorted != nil:
		s.sorted.Ascend(0, f)
	case s.set != nil:
		s.set.All(func(member string) bool { return f(member, 1) })
	}
}

// searches returns the work of n searches in the source.
func (s *scoredSource) searches(n int) int64 {
	switch {
	case s.sorted != nil:
		return command.SearchesIn(s.sorted, n)
	case s.set != nil:
		return command.SearchesIn(s.set, n)
	}
	return 0
}

// weighted returns the score times the weight. It is NaN for an infinite score and the weight 0.
func (s *scoredSource) weighted(score float64) float64 { return float64(score * s.weight) }

// aggregate combines two scores of a member.
type aggregate func(a, b float64) float64

func sumOf(a, b float64) float64 { return orZero(a + b) }

func lesser(a, b float64) float64 {
	if b < a {
		return b
	}
	return a
}

func greater(a, b float64) float64 {
	if b > a {
		return b
	}
	return a
}

// orZero returns f, or 0 if f is NaN, as Redis does for the sum of inf and -inf.
func orZero(f float64) float64 {
	if math.IsNaN(f) {
		return 0
	}
	return f
}

// algebra is the kind of a set operation.
type algebra uint8

const (
	union algebra = iota
	intersection
	difference
	intersectionLength
)

// scoredAlgebra is the state of a set operation.
type scoredAlgebra struct {
	kind       algebra
	store      bool
	sources    []scoredSource
	aggregate  aggregate
	withScores bool
	limit      int64 // LIMIT of ZINTERCARD, or 0 if there is none
	result     collection.Gathering
}

func zunionOp(c *command.Call) protocol.Value      { return combine(c, union, false) }
func zinterOp(c *command.Call) protocol.Value      { return combine(c, intersection, false) }
func zdiffOp(c *command.Call) protocol.Value       { return combine(c, difference, false) }
func zunionstoreOp(c *command.Call) protocol.Value { return combine(c, union, true) }
func zinterstoreOp(c *command.Call) protocol.Value { return combine(c, intersection, true) }
func zdiffstoreOp(c *command.Call) protocol.Value  { return combine(c, difference, true) }
func zintercardOp(c *command.Call) protocol.Value  { return combine(c, intersectionLength, false) }

func combine(c *command.Call, kind algebra, store bool) protocol.Value {
	a := scoredAlgebra{kind: kind, store: store, aggregate: sumOf}
	words := c.Args[1:]
	if store {
		words = c.Args[2:]
	}
	n, ok := protocol.ParseInt(words[0])
	switch {
	case !ok:
		return command.ErrNotInteger
	case n < 1:
		return protocol.Err("at least 1 input key is needed for '" + c.Args[0] + "' command")
	case n > int64(len(words)-1):
		return command.ErrSyntax
	}
	if problem, ok := scoredSources(c, &a, words[1:1+n]); !ok {
		return problem
	}
	if problem, ok := a.parseOptions(words[1+n:]); !ok {
		return problem
	}
	if kind != difference {
		slices.SortStableFunc(a.sources, func(x, y scoredSource) int { return x.len() - y.len() })
	}
	count, problem, ok := calculate(c, &a)
	switch {
	case !ok:
		return problem
	case kind == intersectionLength:
		return protocol.Integer(count)
	case store:
		c.StoreCollection(c.Args[1], c.Args[0], a.result.SortedSet(), event.ClassZset)
		return protocol.Integer(int64(a.result.Len()))
	}
	return a.reply()
}

// reply returns the members of the result as a reply, sorted by score.
func (a *scoredAlgebra) reply() protocol.Value {
	a.result.Sort()
	elems := make([]protocol.Value, 0, 2*a.result.Len())
	a.result.All(func(member string, score float64) {
		elems = append(elems, protocol.Bulk(member))
		if a.withScores {
			elems = append(elems, protocol.Double(score))
		}
	})
	if a.withScores {
		return protocol.Pairs(elems...)
	}
	return protocol.Array(elems...)
}

// scoredSources appends the sources at keys.
func scoredSources(c *command.Call, a *scoredAlgebra, keys []string) (problem protocol.Value, ok bool) {
	for _, key := range keys {
		source := scoredSource{weight: 1}
		if it := c.Find(key); it != nil {
			switch v := it.Collection().(type) {
			case *collection.Set:
				source.set = v
			case *collection.SortedSet:
				source.sorted = v
			default:
				return command.ErrWrongType, false
			}
		}
		a.sources = append(a.sources, source)
	}
	return problem, true
}

func (a *scoredAlgebra) parseOptions(words []string) (problem protocol.Value, ok bool) {
	combines := a.kind == union || a.kind == intersection
	for len(words) > 0 {
		used := 2
		switch {
		case command.IsWord(words[0], "WEIGHTS") && combines && len(words) > len(a.sources):
			for i := range a.sources {
				if a.sources[i].weight, ok = parseScore(words[1+i]); !ok {
					return protocol.Err("weight value is not a float"), false
				}
			}
			used = 1 + len(a.sources)
		case command.IsWord(words[0], "AGGREGATE") && combines && len(words) > 1:
			if a.aggregate = aggregateNamed(words[1]); a.aggregate == nil {
				return command.ErrSyntax, false
			}
		case command.IsWord(words[0], "WITHSCORES") && !a.store && a.kind != intersectionLength:
			a.withScores, used = true, 1
		case command.IsWord(words[0], "LIMIT") && a.kind == intersectionLength && len(words) > 1:
			if a.limit, ok = protocol.ParseInt(words[1]); !ok || a.limit < 0 {
				return protocol.Err("LIMIT can't be negative"), false
			}
		default:
			return command.ErrSyntax, false
		}
		words = words[used:]
	}
	return problem, true
}

func aggregateNamed(word string) aggregate {
	switch {
	case command.IsWord(word, "SUM"):
		return sumOf
	case command.IsWord(word, "MIN"):
		return lesser
	case command.IsWord(word, "MAX"):
		return greater
	}
	return nil
}

// gatherWork is the work of a member of a result, which is sorted twice and stored in two trees.
const gatherWork = 1 << 10

// calculate computes the result, or for [intersectionLength] only its length.
func calculate(c *command.Call, a *scoredAlgebra) (count int64, problem protocol.Value, ok bool) {
	if a.kind == union {
		problem, ok = uniteScored(c, a)
		return 0, problem, ok
	}
	first := &a.sources[0]
	work := int64(command.PassWork)
	if a.kind != intersectionLength {
		work = gatherWork
	}
	for i := range a.sources[1:] {
		work += a.sources[1+i].searches(1)
	}
	limit := a.limit
	if limit == 0 {
		limit = math.MaxInt64
	}
	search, problem, ok := c.SearchShared(int64(first.len()), limit, work)
	if !ok {
		return 0, problem, false
	}
	first.all(func(member string, score float64) bool {
		if problem, ok = search.Next(); !ok {
			return false
		}
		if score, in := a.scoreOf(member, score); in {
			count++
			if a.kind != intersectionLength {
				a.result.Add(member, score)
			}
		}
		return count < limit
	})
	return count, problem, ok
}

// scoreOf returns the score in the result of a member of the first source. in reports whether the result has the
// member.
func (a *scoredAlgebra) scoreOf(member string, score float64) (result float64, in bool) {
	first, others := &a.sources[0], a.sources[1:]
	if a.kind == difference {
		for i := range others {
			if _, in := others[i].score(member); in {
				return 0, false
			}
		}
		return score, true
	}
	result = orZero(first.weighted(score))
	for i := range others {
		other, in := others[i].score(member)
		if !in {
			return 0, false
		}
		result = a.aggregate(result, others[i].weighted(other))
	}
	return result, true
}

func uniteScored(c *command.Call, a *scoredAlgebra) (problem protocol.Value, ok bool) {
	n := int64(0)
	for i := range a.sources {
		n += int64(a.sources[i].len())
	}
	if problem, ok = c.Charge(n * gatherWork); !ok {
		return problem, false
	}
	for i := range a.sources {
		source := &a.sources[i]
		source.all(func(member string, score float64) bool {
			a.result.Add(member, orZero(source.weighted(score)))
			return true
		})
	}
	a.result.Merge(a.aggregate)
	return problem, true
}
