package fsm

import (
	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// The commands of this file take elements, or wait for elements: see [call.wait]. A waiter runs the command
// again.

func blpopOp(c *call) protocol.Value { return c.popFirst(left) }
func brpopOp(c *call) protocol.Value { return c.popFirst(right) }

// popFirst is BLPOP and BRPOP: "<key>… <timeout>".
func (c *call) popFirst(at side) protocol.Value {
	last := len(c.args) - 1
	deadlineMillis, problem, ok := c.waitUntil(c.args[last])
	if !ok {
		return problem
	}
	for _, key := range c.args[1:last] {
		_, there, ok := look[*collection.List](c, key)
		if !ok {
			return errWrongType
		}
		if there {
			elems, problem, ok := c.pop(key, at, 1)
			if !ok {
				return problem
			}
			return protocol.Array(protocol.Bulk(key), elems[0])
		}
	}
	return c.wait(keyspace.KindList, 1, last-1, deadlineMillis, protocol.NullArray)
}

// blmoveOp is "<source> <destination> <side> <side> <timeout>".
func blmoveOp(c *call) protocol.Value {
	from, ok1 := parseSide(c.args[3])
	to, ok2 := parseSide(c.args[4])
	if !ok1 || !ok2 {
		return errSyntax
	}
	return c.moveFirst(from, to, c.args[5])
}

func brpoplpushOp(c *call) protocol.Value { return c.moveFirst(right, left, c.args[3]) }

// moveFirst is BLMOVE and BRPOPLPUSH. No element is null, so a null says that there is none.
func (c *call) moveFirst(from, to side, timeout string) protocol.Value {
	deadlineMillis, problem, ok := c.waitUntil(timeout)
	if !ok {
		return problem
	}
	if reply := c.moveElement(c.args[1], c.args[2], from, to); reply.Kind != protocol.KindNull {
		return reply
	}
	return c.wait(keyspace.KindList, 1, 1, deadlineMillis, protocol.Null)
}

// blmpopOp is "<timeout> <numkeys> <key>… <side> [COUNT <n>]".
func blmpopOp(c *call) protocol.Value {
	m, at, problem, ok := parseListPop(c.args[2:])
	if !ok {
		return problem
	}
	deadlineMillis, problem, ok := c.waitUntil(c.args[1])
	if !ok {
		return problem
	}
	reply, none := c.popMany(&m, at)
	if !none {
		return reply
	}
	return c.wait(keyspace.KindList, 3, len(m.keys), deadlineMillis, protocol.NullArray)
}
