// Package hash has the commands for hashes.
package hash

import (
	"math"
	"slices"
	"strconv"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// Ops has the commands for hashes.
var Ops = map[string]command.Op{
	"hdel":         hdelOp,
	"hexists":      hexistsOp,
	"hget":         hgetOp,
	"hgetall":      hgetallOp,
	"hincrby":      hincrbyOp,
	"hincrbyfloat": hincrbyfloatOp,
	"hkeys":        hkeysOp,
	"hlen":         command.LengthOf[*collection.Hash],
	"hmget":        hmgetOp,
	"hmset":        command.With(hashSet, true),
	"hrandfield":   hrandfieldOp,
	"hscan":        hscanOp,
	"hset":         command.With(hashSet, false),
	"hsetnx":       hsetnxOp,
	"hstrlen":      hstrlenOp,
	"hvals":        hvalsOp,
}

func readHash(c *command.Call) (h *collection.Hash, there, ok bool) {
	return command.Read[*collection.Hash](c, c.Args[1])
}

func theHash(c *command.Call, missing protocol.Value) (h *collection.Hash, reply protocol.Value, ok bool) {
	return command.ReadOr[*collection.Hash](c, c.Args[1], missing)
}

// field returns the value of the field that the command names.
func field(c *command.Call) (value string, there, ok bool) {
	h, there, ok := readHash(c)
	if !there {
		return "", false, ok
	}
	value, there = h.Get(c.Args[2])
	return value, there, true
}

func hgetOp(c *command.Call) protocol.Value {
	value, there, ok := field(c)
	switch {
	case !ok:
		return command.ErrWrongType
	case !there:
		return protocol.Null
	}
	return protocol.Bulk(value)
}

func hexistsOp(c *command.Call) protocol.Value {
	_, there, ok := field(c)
	if !ok {
		return command.ErrWrongType
	}
	return command.Boolean(there)
}

func hstrlenOp(c *command.Call) protocol.Value {
	value, _, ok := field(c)
	if !ok {
		return command.ErrWrongType
	}
	return protocol.Integer(int64(len(value)))
}

func hmgetOp(c *command.Call) protocol.Value {
	h, there, ok := readHash(c)
	if !ok {
		return command.ErrWrongType
	}
	names := c.Args[2:]
	elems := make([]protocol.Value, len(names))
	if !there {
		return protocol.Array(elems...)
	}
	if problem, ok := c.Charge(command.SearchesIn(h, len(names))); !ok {
		return problem
	}
	for i, name := range names {
		if value, there := h.Get(name); there {
			elems[i] = protocol.Bulk(value)
		}
	}
	return protocol.Array(elems...)
}

func hgetallOp(c *command.Call) protocol.Value { return hashWalk(c, true, true, protocol.Map) }
func hkeysOp(c *command.Call) protocol.Value   { return hashWalk(c, true, false, protocol.Array) }
func hvalsOp(c *command.Call) protocol.Value   { return hashWalk(c, false, true, protocol.Array) }

// hashWalk returns all names, all values or both.
func hashWalk(c *command.Call, names, values bool, reply func(...protocol.Value) protocol.Value) protocol.Value {
	h, problem, ok := theHash(c, reply())
	if !ok {
		return problem
	}
	n := h.Len()
	if names && values {
		n *= 2
	}
	if problem, ok := c.Charge(int64(n) * command.ElementWork); !ok {
		return problem
	}
	elems := make([]protocol.Value, 0, n)
	h.All(func(name, value string) bool {
		if names {
			elems = append(elems, protocol.Bulk(name))
		}
		if values {
			elems = append(elems, protocol.Bulk(value))
		}
		return true
	})
	return reply(elems...)
}

func hrandfieldOp(c *command.Call) protocol.Value {
	if len(c.Args) == 2 {
		h, reply, ok := theHash(c, protocol.Null)
		if !ok {
			return reply
		}
		name, _ := h.At(c.Draw(h.Len()))
		return protocol.Bulk(name)
	}
	count, withValues, problem, ok := c.DrawPairs("WITHVALUES")
	if !ok {
		return problem
	}
	return drawFields(c, count, withValues)
}

func drawFields(c *command.Call, count int64, withValues bool) protocol.Value {
	h, problem, ok := theHash(c, protocol.Array())
	if !ok {
		return problem
	}
	returned, reply := 1, protocol.Array
	if withValues {
		returned, reply = 2, protocol.Pairs
	}
	if problem, ok := c.ChargeDrawn(count, h, returned); !ok {
		return problem
	}
	var elems []protocol.Value
	for _, place := range c.Drawn(count, h.Len()) {
		name, value := h.At(place)
		elems = append(elems, protocol.Bulk(name))
		if withValues {
			elems = append(elems, protocol.Bulk(value))
		}
	}
	return reply(elems...)
}

func hscanOp(c *command.Call) protocol.Value {
	return command.ScanElements(c, func(h *collection.Hash, cursor uint64, s *command.ElementScan) {
		if from, ok := command.ScanFrom(cursor); ok {
			h.Ascend(from, s.Visit)
		}
	})
}

// OpenHash charges for changes that add this number of bytes, and opens the hash of the command's key: see
// [command.Open].
func OpenHash(c *command.Call, changes, bytes int) (e command.Edit[*collection.Hash], problem protocol.Value, ok bool) {
	h, there, ok := readHash(c)
	if !ok {
		return e, command.ErrWrongType, false
	}
	if !there {
		h = collection.NewHash()
	}
	if problem, ok = c.Charge(command.ChangesIn(h, changes, bytes)); !ok {
		return e, problem, false
	}
	e, _ = command.Open(c, c.Args[1], collection.NewHash)
	return e, problem, true
}

// put sets a field of an open hash, and reports whether the field is new.
func put(e *command.Edit[*collection.Hash], name, value string) (added bool) {
	if added = e.V.Put(name, value); added {
		e.OwnerChanged(locks.Joined, name)
	}
	return added
}

// remove removes a field from an open hash, and reports whether the field existed.
func remove(e *command.Edit[*collection.Hash], name string) (removed bool) {
	if removed = e.V.Remove(name); removed {
		e.OwnerChanged(locks.Parted, name)
	}
	return removed
}

// hashSet is HSET, whose reply is the number of new fields, or HMSET, whose reply is OK.
func hashSet(c *command.Call, repliesOK bool) protocol.Value {
	pairs := c.Args[2:]
	if len(pairs)%2 != 0 {
		return command.ErrArity(c.Args[0])
	}
	if command.AnyTooLong(pairs) {
		return command.ErrTooLong
	}
	e, problem, ok := OpenHash(c, len(pairs)/2, command.Length(pairs))
	if !ok {
		return problem
	}
	var added int64
	for i := 0; i < len(pairs); i += 2 {
		if put(&e, pairs[i], pairs[i+1]) {
			added++
		}
	}
	e.KeepAs(event.ClassHash, "hset")
	if repliesOK {
		return protocol.OK
	}
	return protocol.Integer(added)
}

func hsetnxOp(c *command.Call) protocol.Value {
	_, there, ok := field(c)
	switch {
	case !ok:
		return command.ErrWrongType
	case there:
		return command.Zero
	case command.AnyTooLong(c.Args[2:]):
		return command.ErrTooLong
	}
	return setField(c, c.Args[3], "hset", command.One)
}

// setField sets the field that the command names, emits the event, and returns reply.
func setField(c *command.Call, value, eventName string, reply protocol.Value) protocol.Value {
	e, problem, ok := OpenHash(c, 1, len(c.Args[2])+len(value))
	if !ok {
		return problem
	}
	put(&e, c.Args[2], value)
	e.KeepAs(event.ClassHash, eventName)
	return reply
}

func hdelOp(c *command.Call) protocol.Value {
	h, reply, ok := theHash(c, command.Zero)
	if !ok {
		return reply
	}
	names := c.Args[2:]
	if problem, ok := c.Charge(command.SearchesIn(h, len(names))); !ok {
		return problem
	}
	has := func(name string) bool {
		_, ok := h.Get(name)
		return ok
	}
	if !slices.ContainsFunc(names, has) {
		return command.Zero
	}
	e, problem, ok := OpenHash(c, len(names), 0)
	if !ok {
		return problem
	}
	var n int64
	for _, name := range names {
		if remove(&e, name) {
			n++
		}
	}
	e.KeepAs(event.ClassHash, "hdel")
	return protocol.Integer(n)
}

func hincrbyOp(c *command.Call) protocol.Value {
	by, ok := protocol.ParseInt(c.Args[3])
	if !ok {
		return command.ErrNotInteger
	}
	value, there, ok := field(c)
	if !ok {
		return command.ErrWrongType
	}
	var n int64
	if there {
		if n, ok = protocol.ParseInt(value); !ok {
			return protocol.Err("hash value is not an integer")
		}
	}
	if by < 0 && n < math.MinInt64-by || by > 0 && n > math.MaxInt64-by {
		return protocol.ErrOverflow.Value()
	}
	if command.TooLong(c.Args[2]) {
		return command.ErrTooLong
	}
	n += by
	return setField(c, strconv.FormatInt(n, 10), "hincrby", protocol.Integer(n))
}

func hincrbyfloatOp(c *command.Call) protocol.Value {
	if problem, ok := c.Charge(command.FloatWork + int64(len(c.Args[3]))*command.DigitWork); !ok {
		return problem
	}
	by, ok := command.ParseLongDouble(c.Args[3])
	switch {
	case !ok:
		return command.ErrNotFloat
	case by.IsInf():
		return protocol.Err("value is NaN or Infinity")
	}
	value, there, ok := field(c)
	switch {
	case !ok:
		return command.ErrWrongType
	case command.TooLong(c.Args[2]):
		return command.ErrTooLong
	}
	if !there {
		value = "0"
	}
	if problem, ok := c.Charge(int64(min(len(value), command.MaxFloatWord)) * command.DigitWork); !ok {
		return problem
	}
	old, ok := command.ParseLongDouble(value)
	if !ok {
		return protocol.Err("hash value is not a float")
	}
	sum, problem := command.AddLongDoubles(old, by)
	if problem.IsError() {
		return problem
	}
	c.Spend(int64(len(sum)) * command.DigitWork)
	return setField(c, sum, "hincrbyfloat", protocol.Bulk(sum))
}
