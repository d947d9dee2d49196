package fsm

import (
	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/protocol"
)

// lookSet is [look] for a set.
func (c *call) lookSet() (s *collection.Set, there, ok bool) {
	return look[*collection.Set](c, c.args[1])
}

// theSet is [lookOr] for a set.
func (c *call) theSet(missing protocol.Value) (s *collection.Set, reply protocol.Value, ok bool) {
	return lookOr[*collection.Set](c, c.args[1], missing)
}

func scardOp(c *call) protocol.Value {
	s, reply, ok := c.theSet(zero)
	if !ok {
		return reply
	}
	return protocol.Integer(int64(s.Len()))
}

func sismemberOp(c *call) protocol.Value {
	s, there, ok := c.lookSet()
	if !ok {
		return errWrongType
	}
	return boolean(there && s.Has(c.args[2]))
}

func smismemberOp(c *call) protocol.Value {
	s, there, ok := c.lookSet()
	if !ok {
		return errWrongType
	}
	names := c.args[2:]
	if there {
		if problem, ok := c.charge(searchesIn(s, len(names))); !ok {
			return problem
		}
	}
	elems := make([]protocol.Value, len(names))
	for i, name := range names {
		elems[i] = boolean(there && s.Has(name))
	}
	return protocol.Array(elems...)
}

func smembersOp(c *call) protocol.Value {
	s, reply, ok := c.theSet(protocol.Set())
	if !ok {
		return reply
	}
	return c.membersOf(s)
}

// membersOf is a set as a reply.
func (c *call) membersOf(s *collection.Set) protocol.Value {
	if problem, ok := c.charge(int64(s.Len()) * elementWork); !ok {
		return problem
	}
	elems := make([]protocol.Value, 0, s.Len())
	s.All(func(name string) bool {
		elems = append(elems, protocol.Bulk(name))
		return true
	})
	return protocol.Set(elems...)
}

func srandmemberOp(c *call) protocol.Value {
	if len(c.args) > 3 {
		return errSyntax
	}
	var count int64
	if len(c.args) == 3 {
		var problem protocol.Value
		var ok bool
		if count, problem, ok = drawCount(c.args[2]); !ok {
			return problem
		}
	}
	s, there, ok := c.lookSet()
	switch {
	case !ok:
		return errWrongType
	case !there && len(c.args) == 2:
		return protocol.Null
	case !there:
		return protocol.Array()
	case len(c.args) == 2:
		return protocol.Bulk(s.At(c.draw(s.Len())))
	}
	if problem, ok := c.chargeDrawn(count, s, 1); !ok {
		return problem
	}
	var elems []protocol.Value
	for _, place := range c.drawn(count, s.Len()) {
		elems = append(elems, protocol.Bulk(s.At(place)))
	}
	return protocol.Array(elems...)
}

func sscanOp(c *call) protocol.Value {
	return scanElements(c, func(v *collection.Set, cursor uint64, s *elementScan) {
		if from, ok := scanFrom(cursor); ok {
			v.Ascend(from, func(order uint64, name string) bool { return s.visit(order, name, "") })
		}
	})
}
