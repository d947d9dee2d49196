package fsm

import (
	"slices"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/protocol"
)

func saddOp(c *call) protocol.Value {
	key, names := c.args[1], c.args[2:]
	if anyTooLong(names) {
		return errTooLong
	}
	s, there, ok := c.lookSet()
	if !ok {
		return errWrongType
	}
	fresh := func() *collection.Set { return collection.NewSet(names[0], len(names)) }
	if !there {
		s = fresh()
	}
	if problem, ok := c.charge(changesIn(s, len(names), length(names))); !ok {
		return problem
	}
	if there && !slices.ContainsFunc(names, func(name string) bool { return !s.Has(name) }) {
		return zero
	}
	e, _ := open(c, key, fresh)
	e.V.Expect(len(names))
	var added int64
	for _, name := range names {
		if e.V.Add(name) {
			added++
		}
	}
	e.keep()
	c.notify(classSet, "sadd", key)
	return protocol.Integer(added)
}

func sremOp(c *call) protocol.Value {
	names := c.args[2:]
	s, reply, ok := c.theSet(zero)
	if !ok {
		return reply
	}
	if problem, ok := c.charge(changesIn(s, len(names), 0)); !ok {
		return problem
	}
	if !slices.ContainsFunc(names, s.Has) {
		return zero
	}
	return protocol.Integer(c.removeMembers(c.args[1], "srem", names))
}

// removeMembers takes members out of the set of a key, and the key too if no member is left.
func (c *call) removeMembers(key, event string, names []string) (n int64) {
	e, _ := open(c, key, collection.NewIntSet)
	for _, name := range names {
		if e.V.Remove(name) {
			n++
		}
	}
	e.keep()
	c.notify(classSet, event, key)
	c.notifyGone(key, e.V)
	return n
}

func smoveOp(c *call) protocol.Value {
	from, to, name := c.args[1], c.args[2], c.args[3]
	source, there, ok := look[*collection.Set](c, from)
	switch {
	case !ok:
		return errWrongType
	case !there:
		return zero
	}
	target, known, ok := look[*collection.Set](c, to)
	fresh := func() *collection.Set { return collection.NewSet(name, 1) }
	switch {
	case !ok:
		return errWrongType
	case !known:
		target = fresh()
	}
	if problem, ok := c.charge(changesIn(source, 1, 0) + changesIn(target, 1, len(name)) + writeWork); !ok {
		return problem
	}
	if from == to || !source.Has(name) {
		return boolean(source.Has(name))
	}
	c.removeMembers(from, "srem", []string{name})
	if !target.Has(name) {
		e, _ := open(c, to, fresh)
		e.V.Add(name)
		e.keep()
		c.notify(classSet, "sadd", to)
	}
	return one
}

func spopOp(c *call) protocol.Value {
	if len(c.args) > 3 {
		return errSyntax
	}
	count, counted, ok := c.popCount()
	if !ok {
		return errNotPositive
	}
	s, there, ok := c.lookSet()
	switch {
	case !ok:
		return errWrongType
	case !there && !counted:
		return protocol.Null
	case !there, count == 0:
		return protocol.Set()
	}
	n := int(min(count, int64(s.Len())))
	if problem, ok := c.charge(int64(n)*elementWork + searchesIn(s, n) + changesIn(s, n, 0)); !ok {
		return problem
	}
	return c.popMembers(s, n, !counted)
}

// popMembers takes n random members out of the set that the command names.
func (c *call) popMembers(s *collection.Set, n int, single bool) protocol.Value {
	names := make([]string, n)
	for i, place := range c.drawDistinct(n, s.Len()) {
		names[i] = s.At(place)
	}
	if n == s.Len() {
		c.remove(c.find(c.args[1]))
		c.notify(classSet, "spop", c.args[1])
		c.notify(classGeneric, "del", c.args[1])
	} else {
		c.removeMembers(c.args[1], "spop", names)
	}
	if single {
		return protocol.Bulk(names[0])
	}
	elems := make([]protocol.Value, n)
	for i, name := range names {
		elems[i] = protocol.Bulk(name)
	}
	return protocol.Set(elems...)
}
