package fsm

import (
	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/protocol"
)

// side is an end of a list.
type side bool

const (
	left  side = false
	right side = true
)

// event is the name of an event at an end of a list.
func (s side) event(ofLeft, ofRight string) string {
	if s == right {
		return ofRight
	}
	return ofLeft
}

func lpushOp(c *call) protocol.Value  { return c.pushAll(left, false) }
func rpushOp(c *call) protocol.Value  { return c.pushAll(right, false) }
func lpushxOp(c *call) protocol.Value { return c.pushAll(left, true) }
func rpushxOp(c *call) protocol.Value { return c.pushAll(right, true) }

// pushAll is LPUSH and its like.
func (c *call) pushAll(at side, onlyIfThere bool) protocol.Value {
	key, values := c.args[1], c.args[2:]
	bytes := 0
	for _, v := range values {
		if tooLong(v) {
			return errTooLong
		}
		bytes += len(v)
	}
	if onlyIfThere {
		if _, there, ok := c.lookList(); !ok {
			return errWrongType
		} else if !there {
			return zero
		}
	}
	if problem, ok := c.charge(int64(bytes)); !ok {
		return problem
	}
	e, ok := open(c, key, collection.NewList)
	if !ok {
		return errWrongType
	}
	e.V.Expect(bytes)
	for _, v := range values {
		at.push(e.V, v)
	}
	n := e.V.Len()
	e.keep()
	c.notify(classList, at.event("lpush", "rpush"), key)
	return protocol.Integer(int64(n))
}

func (s side) push(l *collection.List, v string) {
	if s == right {
		l.PushBack(v)
		return
	}
	l.PushFront(v)
}

func (s side) pop(l *collection.List) string {
	if s == right {
		return l.PopBack()
	}
	return l.PopFront()
}

func lpopOp(c *call) protocol.Value { return c.popOne(left) }
func rpopOp(c *call) protocol.Value { return c.popOne(right) }

// popOne is LPOP and RPOP.
func (c *call) popOne(at side) protocol.Value {
	if len(c.args) > 3 {
		return errArity(c.args[0])
	}
	count, counted, ok := c.popCount()
	if !ok {
		return errNotPositive
	}
	l, there, ok := c.lookList()
	switch {
	case !ok:
		return errWrongType
	case !there && counted:
		return protocol.NullArray
	case !there:
		return protocol.Null
	case count == 0:
		return protocol.Array()
	}
	elems, problem, ok := c.pop(c.args[1], at, int(min(count, int64(l.Len()))))
	switch {
	case !ok:
		return problem
	case !counted:
		return elems[0]
	}
	return protocol.Array(elems...)
}

// pop takes count elements off an end of the list of key, which has as many, and tells so.
func (c *call) pop(key string, at side, count int) (elems []protocol.Value, problem protocol.Value, ok bool) {
	if problem, ok = c.charge(int64(count-1) * elementWork); !ok {
		return nil, problem, false
	}
	return c.take(key, at, count), problem, true
}

// take is pop, charged before.
func (c *call) take(key string, at side, count int) []protocol.Value {
	e, _ := open(c, key, collection.NewList)
	elems := make([]protocol.Value, count)
	for i := range elems {
		elems[i] = protocol.Bulk(at.pop(e.V))
	}
	e.keep()
	c.notify(classList, at.event("lpop", "rpop"), key)
	c.notifyGone(key, e.V)
	return elems
}

// parseSide reads LEFT or RIGHT.
func parseSide(word string) (s side, ok bool) {
	switch {
	case isWord(word, "LEFT"):
		return left, true
	case isWord(word, "RIGHT"):
		return right, true
	}
	return left, false
}

func lmoveOp(c *call) protocol.Value {
	from, ok1 := parseSide(c.args[3])
	to, ok2 := parseSide(c.args[4])
	if !ok1 || !ok2 {
		return errSyntax
	}
	return c.moveElement(c.args[1], c.args[2], from, to)
}

func rpoplpushOp(c *call) protocol.Value {
	return c.moveElement(c.args[1], c.args[2], right, left)
}

// moveElement is LMOVE: the reply is the element, or null if there is none.
func (c *call) moveElement(source, destination string, from, to side) protocol.Value {
	l, there, ok := look[*collection.List](c, source)
	switch {
	case !ok:
		return errWrongType
	case !there:
		return protocol.Null
	}
	if _, _, ok := look[*collection.List](c, destination); !ok {
		return errWrongType
	}
	if !c.affords(2) {
		return errOverWork
	}
	if source == destination {
		return c.rotate(source, from, to)
	}
	v := l.Index(0)
	if from == right {
		v = l.Index(l.Len() - 1)
	}
	if problem, ok := c.charge(2 * int64(len(v))); !ok {
		return problem
	}
	d, _ := open(c, destination, collection.NewList)
	to.push(d.V, v)
	d.keep()
	c.notify(classList, to.event("lpush", "rpush"), destination)
	return c.take(source, from, 1)[0]
}

// rotate moves an element of a list to an end of the same list.
func (c *call) rotate(key string, from, to side) protocol.Value {
	e, _ := open(c, key, collection.NewList)
	v := from.pop(e.V)
	c.spend(2 * int64(len(v)))
	to.push(e.V, v)
	e.keep()
	c.notify(classList, to.event("lpush", "rpush"), key)
	c.notify(classList, from.event("lpop", "rpop"), key)
	return protocol.Bulk(v)
}
