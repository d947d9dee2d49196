// Package zset has the commands for sorted sets.
package zset

import (
	"math"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// popsScored pops members from an end of a sorted set. A score follows each member.
func popsScored(at extreme) command.Pops {
	take := func(c *command.Call, key string, count int) ([]protocol.Value, protocol.Value, bool) {
		return popExtremes(c, key, at, count)
	}
	return command.Pops{Kind: keyspace.KindSortedSet, Take: take, Reply: nestedPairs}
}

func parseExtremePop(word string) (p command.Pops, ok bool) {
	at := extreme(command.IsWord(word, "MAX"))
	return popsScored(at), at == highest || command.IsWord(word, "MIN")
}

// Ops has the commands for sorted sets.
var Ops = map[string]command.Op{
	"bzmpop":           command.With((*command.Call).PopManyOrWait, parseExtremePop),
	"bzpopmax":         command.With((*command.Call).PopFirst, popsScored(highest)),
	"bzpopmin":         command.With((*command.Call).PopFirst, popsScored(lowest)),
	"zadd":             zaddOp,
	"zcard":            command.LengthOf[*collection.SortedSet],
	"zcount":           command.With(countMembers, memberRange{kind: byScore}),
	"zdiff":            zdiffOp,
	"zdiffstore":       zdiffstoreOp,
	"zincrby":          zincrbyOp,
	"zinter":           zinterOp,
	"zintercard":       zintercardOp,
	"zinterstore":      zinterstoreOp,
	"zlexcount":        command.With(countMembers, memberRange{kind: byName}),
	"zmpop":            command.With((*command.Call).PopManyNow, parseExtremePop),
	"zmscore":          zmscoreOp,
	"zpopmax":          command.With(popScored, highest),
	"zpopmin":          command.With(popScored, lowest),
	"zrandmember":      zrandmemberOp,
	"zrange":           command.With(rangeMembers, memberRange{}),
	"zrangebylex":      command.With(rangeMembers, memberRange{kind: byName, fixed: true}),
	"zrangebyscore":    command.With(rangeMembers, memberRange{kind: byScore, fixed: true}),
	"zrangestore":      zrangestoreOp,
	"zrank":            command.With(rank, false),
	"zrem":             zremOp,
	"zremrangebylex":   command.With(removeScored, memberRange{kind: byName}),
	"zremrangebyrank":  command.With(removeScored, memberRange{kind: byIndex}),
	"zremrangebyscore": command.With(removeScored, memberRange{kind: byScore}),
	"zrevrange":        command.With(rangeMembers, memberRange{kind: byIndex, fixed: true, reverse: true}),
	"zrevrangebylex":   command.With(rangeMembers, memberRange{kind: byName, fixed: true, reverse: true}),
	"zrevrangebyscore": command.With(rangeMembers, memberRange{kind: byScore, fixed: true, reverse: true}),
	"zrevrank":         command.With(rank, true),
	"zscan":            zscanOp,
	"zscore":           zscoreOp,
	"zunion":           zunionOp,
	"zunionstore":      zunionstoreOp,
}

// zaddFlags has the options of ZADD.
type zaddFlags struct {
	ifMissing, ifThere, ifGreater, ifLess, changed, increment bool
}

// set sets the flag of an option, and reports whether the word is an option.
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
		if command.IsWord(word, option.word) {
			*option.flag = true
			return true
		}
	}
	return false
}

// problem returns the error for flags that exclude each other.
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

func zaddOp(c *command.Call) protocol.Value {
	var f zaddFlags
	words := c.Args[2:]
	for len(words) > 0 && f.set(words[0]) {
		words = words[1:]
	}
	if len(words) == 0 || len(words)%2 != 0 {
		return command.ErrSyntax
	}
	if problem := f.problem(len(words) / 2); problem.IsError() {
		return problem
	}
	return addScored(c, words, &f)
}

func zincrbyOp(c *command.Call) protocol.Value {
	return addScored(c, c.Args[2:], &zaddFlags{increment: true})
}

// addScored runs ZADD. words has a score before each member.
func addScored(c *command.Call, words []string, f *zaddFlags) protocol.Value {
	key := c.Args[1]
	scores := make([]float64, len(words)/2)
	longest := 0
	for i := range scores {
		var ok bool
		if scores[i], ok = parseScore(words[2*i]); !ok {
			return command.ErrNotFloat
		}
		if command.TooLong(words[2*i+1]) {
			return command.ErrTooLong
		}
		longest = max(longest, len(words[2*i+1]))
	}
	z, there, ok := readScored(c)
	if !ok {
		return command.ErrWrongType
	}
	if !there {
		z = collection.NewSortedSet()
	}
	if problem, ok := c.Charge(scoredChanges(z, len(scores), command.Length(words))); !ok {
		return problem
	}
	if !there && f.ifThere {
		return f.reply(&zadded{})
	}
	return applyScores(c, key, words, scores, longest, f)
}

func applyScores(c *command.Call, key string, words []string, scores []float64, longest int,
	f *zaddFlags,
) protocol.Value {
	e, _ := command.Open(c, key, collection.NewSortedSet)
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
		e.Keep()
	}
	if changed {
		name := "zadd"
		if f.increment {
			name = "zincr"
		}
		c.Notify(event.ClassZset, name, key)
	}
	return f.reply(&done)
}

// scoredChanges returns the work of changes that add this number of bytes. A change of a large sorted set removes from
// two trees and adds to both.
func scoredChanges(z *collection.SortedSet, changes, bytes int) int64 {
	if z.Small() {
		return command.ChangesIn(z, changes, bytes)
	}
	return 4 * command.SearchesIn(z, changes)
}

// zadded is the outcome of ZADD.
type zadded struct {
	added, updated int64
	processed      int64   // the members that the options did not exclude, even if their scores are unchanged
	score          float64 // the score of the last processed member
}

// add sets the score of a member. It returns false if the sum would be NaN.
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

func zremOp(c *command.Call) protocol.Value {
	key, members := c.Args[1], c.Args[2:]
	z, reply, ok := theScored(c, command.Zero)
	if !ok {
		return reply
	}
	if problem, ok := c.Charge(scoredChanges(z, len(members), 0)); !ok {
		return problem
	}
	e, _ := command.Open(c, key, collection.NewSortedSet)
	var n int64
	for _, member := range members {
		if e.V.Remove(member) {
			n++
		}
	}
	if n > 0 {
		e.KeepAs(event.ClassZset, "zrem")
	}
	return protocol.Integer(n)
}

// extreme is an end of a sorted set: the lowest or the highest score.
type extreme bool

const (
	lowest  extreme = false
	highest extreme = true
)

// popScored is ZPOPMIN or ZPOPMAX.
func popScored(c *command.Call, at extreme) protocol.Value {
	if len(c.Args) > 3 {
		return command.ErrSyntax
	}
	count, counted, ok := c.PopCount()
	if !ok {
		return command.ErrNotPositive
	}
	z, there, ok := readScored(c)
	switch {
	case !ok:
		return command.ErrWrongType
	case !there || count == 0:
		return protocol.Array()
	}
	pairs, problem, ok := popExtremes(c, c.Args[1], at, int(min(count, int64(z.Len()))))
	switch {
	case !ok:
		return problem
	case !counted:
		return protocol.Array(pairs...)
	}
	return protocol.Pairs(pairs...)
}

// popExtremes pops count members from an end of the sorted set of key, and emits the event. A score follows each
// member.
//
// Requires: the sorted set has count members.
func popExtremes(c *command.Call, key string, at extreme, count int) (pairs []protocol.Value, problem protocol.Value,
	ok bool,
) {
	z, _, _ := command.Read[*collection.SortedSet](c, key)
	if problem, ok = c.Charge(scoredChanges(z, count-1, 0)); !ok {
		return nil, problem, false
	}
	e, _ := command.Open(c, key, collection.NewSortedSet)
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
	e.KeepAs(event.ClassZset, name)
	return pairs, problem, true
}

// nestedPairs returns an array with an array for each pair. Unlike [protocol.Pairs], it does so in RESP2, too.
func nestedPairs(pairs ...protocol.Value) protocol.Value {
	elems := make([]protocol.Value, len(pairs)/2)
	for i := range elems {
		elems[i] = protocol.Array(pairs[2*i : 2*i+2]...)
	}
	return protocol.Array(elems...)
}
