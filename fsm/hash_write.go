package fsm

import (
	"math"
	"slices"
	"strconv"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/protocol"
)

// openHash is [open] for a hash, for so many changes, to which the words add bytes.
func (c *call) openHash(changes, bytes int) (e edit[*collection.Hash], problem protocol.Value, ok bool) {
	h, there, ok := c.lookHash()
	if !ok {
		return e, errWrongType, false
	}
	if !there {
		h = collection.NewHash()
	}
	if problem, ok = c.charge(changesIn(h, changes, bytes)); !ok {
		return e, problem, false
	}
	e, _ = open(c, c.args[1], collection.NewHash)
	return e, problem, true
}

func hsetOp(c *call) protocol.Value  { return c.hashSet(false) }
func hmsetOp(c *call) protocol.Value { return c.hashSet(true) }

// hashSet is HSET, which counts the new fields, or HMSET.
func (c *call) hashSet(older bool) protocol.Value {
	pairs := c.args[2:]
	if len(pairs)%2 != 0 {
		return errArity(c.args[0])
	}
	if anyTooLong(pairs) {
		return errTooLong
	}
	e, problem, ok := c.openHash(len(pairs)/2, length(pairs))
	if !ok {
		return problem
	}
	var added int64
	for i := 0; i < len(pairs); i += 2 {
		if e.V.Put(pairs[i], pairs[i+1]) {
			added++
		}
	}
	e.keep()
	c.notify(classHash, "hset", c.args[1])
	if older {
		return protocol.OK
	}
	return protocol.Integer(added)
}

func hsetnxOp(c *call) protocol.Value {
	_, there, ok := c.field()
	switch {
	case !ok:
		return errWrongType
	case there:
		return zero
	case anyTooLong(c.args[2:]):
		return errTooLong
	}
	return c.setField(c.args[3], "hset", one)
}

// setField gives the field that the command names a value, and returns done.
func (c *call) setField(value, event string, done protocol.Value) protocol.Value {
	e, problem, ok := c.openHash(1, len(c.args[2])+len(value))
	if !ok {
		return problem
	}
	e.V.Put(c.args[2], value)
	e.keep()
	c.notify(classHash, event, c.args[1])
	return done
}

func hdelOp(c *call) protocol.Value {
	h, reply, ok := c.theHash(zero)
	if !ok {
		return reply
	}
	names := c.args[2:]
	if problem, ok := c.charge(searchesIn(h, len(names))); !ok {
		return problem
	}
	has := func(name string) bool {
		_, ok := h.Get(name)
		return ok
	}
	if !slices.ContainsFunc(names, has) {
		return zero
	}
	e, problem, ok := c.openHash(len(names), 0)
	if !ok {
		return problem
	}
	var n int64
	for _, name := range names {
		if e.V.Remove(name) {
			n++
		}
	}
	e.keep()
	c.notify(classHash, "hdel", c.args[1])
	c.notifyGone(c.args[1], e.V)
	return protocol.Integer(n)
}

func hincrbyOp(c *call) protocol.Value {
	by, ok := protocol.ParseInt(c.args[3])
	if !ok {
		return errNotInteger
	}
	value, there, ok := c.field()
	if !ok {
		return errWrongType
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
	if tooLong(c.args[2]) {
		return errTooLong
	}
	n += by
	return c.setField(strconv.FormatInt(n, 10), "hincrby", protocol.Integer(n))
}

func hincrbyfloatOp(c *call) protocol.Value {
	if problem, ok := c.charge(floatWork + int64(len(c.args[3]))*digitWork); !ok {
		return problem
	}
	by, ok := parseLongDouble(c.args[3])
	switch {
	case !ok:
		return errNotFloat
	case by.IsInf():
		return protocol.Err("value is NaN or Infinity")
	}
	value, there, ok := c.field()
	switch {
	case !ok:
		return errWrongType
	case tooLong(c.args[2]):
		return errTooLong
	}
	if !there {
		value = "0"
	}
	if problem, ok := c.charge(int64(min(len(value), maxFloatWord)) * digitWork); !ok {
		return problem
	}
	old, ok := parseLongDouble(value)
	if !ok {
		return protocol.Err("hash value is not a float")
	}
	sum, problem := addLongDoubles(old, by)
	if problem.IsError() {
		return problem
	}
	c.spend(int64(len(sum)) * digitWork)
	return c.setField(sum, "hincrbyfloat", protocol.Bulk(sum))
}
