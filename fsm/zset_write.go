package fsm

import (
	"math"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/protocol"
)

// zaddFlags are the options of ZADD.
type zaddFlags struct {
	ifMissing, ifThere, ifGreater, ifLess, changed, increment bool
}

// set sets the flag of a word, and reports whether there is one.
func (f *zaddFlags) set(word string) bool {
	for _, option := range []struct {
		word string
		flag *bool
	}{
		{"NX", &f.ifMissing},
		{"XX", &f.ifThere},
		{"GT", &f.ifGreater},
		{"LT", &f.ifLess},
		{"CH", &f.changed},
		{"INCR", &f.increment},
	} {
		if isWord(word, option.word) {
			*option.flag = true
			return true
		}
	}
	return false
}

// problem is the error for flags that exclude one another.
func (f *zaddFlags) problem(members int) (problem protocol.Value) {
	switch {
	case f.ifMissing && f.ifThere:
		return protocol.Err("XX and NX options at the same time are not compatible")
	case f.ifMissing && (f.ifGreater || f.ifLess) || f.ifGreater && f.ifLess:
		return protocol.Err("GT, LT, and/or NX options at the same time are not compatible")
	case f.increment && members > 1:
		return protocol.Err("INCR option supports a single increment-element pair")
	}
	return problem
}

func zaddOp(c *call) protocol.Value {
	var f zaddFlags
	words := c.args[2:]
	for len(words) > 0 && f.set(words[0]) {
		words = words[1:]
	}
	if len(words) == 0 || len(words)%2 != 0 {
		return errSyntax
	}
	if problem := f.problem(len(words) / 2); problem.IsError() {
		return problem
	}
	return c.addScored(words, &f)
}

func zincrbyOp(c *call) protocol.Value {
	return c.addScored(c.args[2:], &zaddFlags{increment: true})
}

// addScored is ZADD with scores and members.
func (c *call) addScored(words []string, f *zaddFlags) protocol.Value {
	key := c.args[1]
	scores := make([]float64, len(words)/2)
	longest := 0
	for i := range scores {
		var ok bool
		if scores[i], ok = parseScore(words[2*i]); !ok {
			return errNotFloat
		}
		if tooLong(words[2*i+1]) {
			return errTooLong
		}
		longest = max(longest, len(words[2*i+1]))
	}
	z, there, ok := c.lookScored()
	if !ok {
		return errWrongType
	}
	if !there {
		z = collection.NewSortedSet()
	}
	if problem, ok := c.charge(scoredChanges(z, len(scores), length(words))); !ok {
		return problem
	}
	if !there && f.ifThere {
		return f.reply(&zadded{})
	}
	return c.applyScores(key, words, scores, longest, f)
}

func (c *call) applyScores(key string, words []string, scores []float64, longest int, f *zaddFlags) protocol.Value {
	e, _ := open(c, key, collection.NewSortedSet)
	was := e.V.Encoding()
	if e.V.Len() == 0 {
		e.V.Expect(len(scores), longest)
	} else {
		e.V.Expect(len(scores), 0)
	}
	var done zadded
	for i, score := range scores {
		if !done.add(e.V, words[2*i+1], score, f) {
			return protocol.Err("resulting score is not a number (NaN)")
		}
	}
	changed := done.added+done.updated > 0
	if changed || e.V.Encoding() != was {
		e.keep()
	}
	if changed {
		name := "zadd"
		if f.increment {
			name = "zincr"
		}
		c.notify(classZset, name, key)
	}
	return f.reply(&done)
}

// scoredChanges is the work of so many changes, to which the words add bytes. A large sorted set has two
// trees to change, and in each there is something to remove and something to add.
func scoredChanges(z *collection.SortedSet, changes, bytes int) int64 {
	if z.Small() {
		return changesIn(z, changes, bytes)
	}
	return 4 * searchesIn(z, changes)
}

// zadded is what ZADD did. score is of the last member that was not left alone.
type zadded struct {
	added, updated, processed int64
	score                     float64
}

// add gives a member a score. It reports false if the sum would be no number.
func (d *zadded) add(z *collection.SortedSet, member string, score float64, f *zaddFlags) bool {
	before, there := z.Score(member)
	if !there {
		if !f.ifThere {
			z.Put(member, score)
			d.added++
			d.processed++
			d.score = score
		}
		return true
	}
	if f.ifMissing {
		return true
	}
	if f.increment {
		if score += before; math.IsNaN(score) {
			return false
		}
	}
	if f.ifLess && score >= before || f.ifGreater && score <= before {
		return true
	}
	d.processed++
	d.score = score
	if score != before {
		z.Put(member, score)
		d.updated++
	}
	return true
}

func (f *zaddFlags) reply(d *zadded) protocol.Value {
	switch {
	case f.increment && d.processed > 0:
		return protocol.Double(d.score)
	case f.increment:
		return protocol.Null
	case f.changed:
		return protocol.Integer(d.added + d.updated)
	}
	return protocol.Integer(d.added)
}

func zremOp(c *call) protocol.Value {
	key, members := c.args[1], c.args[2:]
	z, reply, ok := c.theScored(zero)
	if !ok {
		return reply
	}
	if problem, ok := c.charge(scoredChanges(z, len(members), 0)); !ok {
		return problem
	}
	e, _ := open(c, key, collection.NewSortedSet)
	var n int64
	for _, member := range members {
		if e.V.Remove(member) {
			n++
		}
	}
	if n > 0 {
		e.keep()
		c.notify(classZset, "zrem", key)
		c.notifyGone(key, e.V)
	}
	return protocol.Integer(n)
}

// lowest is the end of a sorted set that ZPOPMIN takes from.
type extreme bool

const (
	lowest  extreme = false
	highest extreme = true
)

func zpopminOp(c *call) protocol.Value { return c.popScored(lowest) }
func zpopmaxOp(c *call) protocol.Value { return c.popScored(highest) }

// popScored is ZPOPMIN and ZPOPMAX.
func (c *call) popScored(at extreme) protocol.Value {
	if len(c.args) > 3 {
		return errSyntax
	}
	count, counted, ok := c.popCount()
	if !ok {
		return errNotPositive
	}
	z, there, ok := c.lookScored()
	switch {
	case !ok:
		return errWrongType
	case !there || count == 0:
		return protocol.Array()
	}
	pairs, problem, ok := c.popExtremes(c.args[1], at, int(min(count, int64(z.Len()))))
	switch {
	case !ok:
		return problem
	case !counted:
		return protocol.Array(pairs...)
	}
	return protocol.Pairs(pairs...)
}

// popExtremes takes count members off an end of the sorted set of key, which has as many, and tells so. The
// result is members and scores.
func (c *call) popExtremes(key string, at extreme, count int) (pairs []protocol.Value, problem protocol.Value,
	ok bool,
) {
	z, _, _ := look[*collection.SortedSet](c, key)
	if problem, ok = c.charge(scoredChanges(z, count-1, 0)); !ok {
		return nil, problem, false
	}
	e, _ := open(c, key, collection.NewSortedSet)
	for range count {
		i := 0
		if at == highest {
			i = e.V.Len() - 1
		}
		member, score := e.V.At(i)
		pairs = append(pairs, protocol.Bulk(member), protocol.Double(score))
		e.V.RemoveRange(i, i+1)
	}
	name := "zpopmin"
	if at == highest {
		name = "zpopmax"
	}
	e.keep()
	c.notify(classZset, name, key)
	c.notifyGone(key, e.V)
	return pairs, problem, true
}

// nested is an array of arrays of two, in RESP2 as well.
func nested(pairs ...protocol.Value) protocol.Value {
	elems := make([]protocol.Value, len(pairs)/2)
	for i := range elems {
		elems[i] = protocol.Array(pairs[2*i : 2*i+2]...)
	}
	return protocol.Array(elems...)
}
