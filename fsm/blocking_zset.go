package fsm

import (
	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

func bzpopminOp(c *call) protocol.Value { return c.popFirstScored(lowest) }
func bzpopmaxOp(c *call) protocol.Value { return c.popFirstScored(highest) }

// popFirstScored is BZPOPMIN and BZPOPMAX: "<key>… <timeout>".
func (c *call) popFirstScored(at extreme) protocol.Value {
	last := len(c.args) - 1
	deadlineMillis, problem, ok := c.waitUntil(c.args[last])
	if !ok {
		return problem
	}
	for _, key := range c.args[1:last] {
		_, there, ok := look[*collection.SortedSet](c, key)
		if !ok {
			return errWrongType
		}
		if there {
			pairs, problem, ok := c.popExtremes(key, at, 1)
			if !ok {
				return problem
			}
			return protocol.Array(protocol.Bulk(key), pairs[0], pairs[1])
		}
	}
	return c.wait(keyspace.KindSortedSet, 1, last-1, deadlineMillis, protocol.NullArray)
}

// bzmpopOp is "<timeout> <numkeys> <key>… MIN|MAX [COUNT <n>]".
func bzmpopOp(c *call) protocol.Value {
	m, at, problem, ok := parseScoredPop(c.args[2:])
	if !ok {
		return problem
	}
	deadlineMillis, problem, ok := c.waitUntil(c.args[1])
	if !ok {
		return problem
	}
	reply, none := c.popManyScored(&m, at)
	if !none {
		return reply
	}
	return c.wait(keyspace.KindSortedSet, 3, len(m.keys), deadlineMillis, protocol.NullArray)
}
