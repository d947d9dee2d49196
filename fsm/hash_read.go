package fsm

import (
	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/protocol"
)

// lookHash is [look] for a hash.
func (c *call) lookHash() (h *collection.Hash, there, ok bool) {
	return look[*collection.Hash](c, c.args[1])
}

// theHash is [lookOr] for a hash.
func (c *call) theHash(missing protocol.Value) (h *collection.Hash, reply protocol.Value, ok bool) {
	return lookOr[*collection.Hash](c, c.args[1], missing)
}

// field returns the value of the field that the command names.
func (c *call) field() (value string, there, ok bool) {
	h, there, ok := c.lookHash()
	if !there {
		return "", false, ok
	}
	value, there = h.Get(c.args[2])
	return value, there, true
}

func hgetOp(c *call) protocol.Value {
	value, there, ok := c.field()
	switch {
	case !ok:
		return errWrongType
	case !there:
		return protocol.Null
	}
	return protocol.Bulk(value)
}

func hexistsOp(c *call) protocol.Value {
	_, there, ok := c.field()
	if !ok {
		return errWrongType
	}
	return boolean(there)
}

func hstrlenOp(c *call) protocol.Value {
	value, _, ok := c.field()
	if !ok {
		return errWrongType
	}
	return protocol.Integer(int64(len(value)))
}

func hlenOp(c *call) protocol.Value {
	h, reply, ok := c.theHash(zero)
	if !ok {
		return reply
	}
	return protocol.Integer(int64(h.Len()))
}

func hmgetOp(c *call) protocol.Value {
	h, there, ok := c.lookHash()
	if !ok {
		return errWrongType
	}
	names := c.args[2:]
	elems := make([]protocol.Value, len(names))
	if !there {
		return protocol.Array(elems...)
	}
	if problem, ok := c.charge(searchesIn(h, len(names))); !ok {
		return problem
	}
	for i, name := range names {
		if value, there := h.Get(name); there {
			elems[i] = protocol.Bulk(value)
		}
	}
	return protocol.Array(elems...)
}

func hgetallOp(c *call) protocol.Value { return c.hashWalk(true, true, protocol.Map) }
func hkeysOp(c *call) protocol.Value   { return c.hashWalk(true, false, protocol.Array) }
func hvalsOp(c *call) protocol.Value   { return c.hashWalk(false, true, protocol.Array) }

// hashWalk returns all names, all values or both.
func (c *call) hashWalk(names, values bool, reply func(...protocol.Value) protocol.Value) protocol.Value {
	h, problem, ok := c.theHash(reply())
	if !ok {
		return problem
	}
	n := h.Len()
	if names && values {
		n *= 2
	}
	if problem, ok := c.charge(int64(n) * elementWork); !ok {
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

func hrandfieldOp(c *call) protocol.Value {
	if len(c.args) == 2 {
		h, reply, ok := c.theHash(protocol.Null)
		if !ok {
			return reply
		}
		name, _ := h.At(c.draw(h.Len()))
		return protocol.Bulk(name)
	}
	count, withValues, problem, ok := c.drawPairs("WITHVALUES")
	if !ok {
		return problem
	}
	return c.drawFields(count, withValues)
}

func (c *call) drawFields(count int64, withValues bool) protocol.Value {
	h, problem, ok := c.theHash(protocol.Array())
	if !ok {
		return problem
	}
	returned, reply := 1, protocol.Array
	if withValues {
		returned, reply = 2, protocol.Pairs
	}
	if problem, ok := c.chargeDrawn(count, h, returned); !ok {
		return problem
	}
	var elems []protocol.Value
	for _, place := range c.drawn(count, h.Len()) {
		name, value := h.At(place)
		elems = append(elems, protocol.Bulk(name))
		if withValues {
			elems = append(elems, protocol.Bulk(value))
		}
	}
	return reply(elems...)
}

func hscanOp(c *call) protocol.Value {
	return scanElements(c, func(h *collection.Hash, cursor uint64, s *elementScan) {
		if from, ok := scanFrom(cursor); ok {
			h.Ascend(from, s.visit)
		}
	})
}
