package fsm

import (
	"math"
	"strconv"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

func incrOp(c *call) protocol.Value { return c.increment(1) }

func decrOp(c *call) protocol.Value { return c.increment(-1) }

func incrbyOp(c *call) protocol.Value {
	by, ok := protocol.ParseInt(c.args[2])
	if !ok {
		return errNotInteger
	}
	return c.increment(by)
}

func decrbyOp(c *call) protocol.Value {
	by, ok := protocol.ParseInt(c.args[2])
	if !ok {
		return errNotInteger
	}
	if by == math.MinInt64 {
		return protocol.Err("decrement would overflow")
	}
	return c.increment(-by)
}

// increment adds to a counter. The deadline stays.
func (c *call) increment(by int64) protocol.Value {
	key := c.args[1]
	var n int64
	deadlineMillis := int64(never)
	it, ok := c.findString(key)
	if !ok {
		return errWrongType
	}
	if it != nil {
		if n, ok = protocol.ParseInt(it.Value()); !ok {
			return errNotInteger
		}
		deadlineMillis = it.DeadlineMillis
	}
	if by < 0 && n < math.MinInt64-by || by > 0 && n > math.MaxInt64-by {
		return protocol.ErrOverflow.Value()
	}
	n += by
	c.set(key, strconv.FormatInt(n, 10), deadlineMillis)
	c.notify(classString, "incrby", key)
	return protocol.Integer(n)
}

func incrbyfloatOp(c *call) protocol.Value {
	key := c.args[1]
	value := "0"
	deadlineMillis := int64(never)
	it, ok := c.findString(key)
	if !ok {
		return errWrongType
	}
	if it != nil {
		value, deadlineMillis = it.Value(), it.DeadlineMillis
	}
	if !c.fits(floatWork + int64(len(value)+len(c.args[2]))*digitWork) {
		return errOverWork
	}
	sum, problem := addFloats(value, c.args[2])
	c.spend(floatWork + int64(len(value)+len(sum)+len(c.args[2]))*digitWork)
	if problem.IsError() {
		return problem
	}
	c.store(c.db, c.newItem(key, sum, deadlineMillis, keyspace.EncodingText))
	c.notify(classString, "incrbyfloat", key)
	return protocol.Bulk(sum)
}

// The work of INCRBYFLOAT, whose numbers may have thousands of digits.
const (
	floatWork = 4 << 10
	digitWork = 64
)
