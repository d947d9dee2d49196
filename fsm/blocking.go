package fsm

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// The commands of this file take elements, or wait for elements: see [call.wait]. A waiter runs the command
// again.

func blpopOp(c *call) protocol.Value    { return c.popFirst(popsList(left)) }
func brpopOp(c *call) protocol.Value    { return c.popFirst(popsList(right)) }
func bzpopminOp(c *call) protocol.Value { return c.popFirst(popsScored(lowest)) }
func bzpopmaxOp(c *call) protocol.Value { return c.popFirst(popsScored(highest)) }

// popFirst is BLPOP and its like: "<key>… <timeout>".
func (c *call) popFirst(p pops) protocol.Value {
	last := len(c.args) - 1
	deadlineMillis, problem, ok := c.waitUntil(c.args[last])
	if !ok {
		return problem
	}
	for _, key := range c.args[1:last] {
		n, ok := c.count(key, p.kind)
		if !ok {
			return errWrongType
		}
		if n > 0 {
			elems, problem, ok := p.take(c, key, 1)
			if !ok {
				return problem
			}
			return protocol.Array(append([]protocol.Value{protocol.Bulk(key)}, elems...)...)
		}
	}
	return c.wait(p.kind, 1, last-1, deadlineMillis, protocol.NullArray)
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

func blmpopOp(c *call) protocol.Value { return c.popManyOrWait(parseSidePop) }
func bzmpopOp(c *call) protocol.Value { return c.popManyOrWait(parseExtremePop) }

// popManyOrWait is BLMPOP and BZMPOP: "<timeout> <numkeys> <key>… <end> [COUNT <n>]".
func (c *call) popManyOrWait(parseEnd func(word string) (p pops, ok bool)) protocol.Value {
	m, problem, ok := parseManyKeys(c.args[2:], parseEnd)
	if !ok {
		return problem
	}
	deadlineMillis, problem, ok := c.waitUntil(c.args[1])
	if !ok {
		return problem
	}
	reply, none := c.popMany(&m)
	if !none {
		return reply
	}
	return c.wait(m.kind, 3, len(m.keys), deadlineMillis, protocol.NullArray)
}
