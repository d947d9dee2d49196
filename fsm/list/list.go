// Package list has the commands for lists.
package list

import (
	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// popsList pops elements from an end of a list.
func popsList(at side) command.Pops {
	take := func(c *command.Call, key string, count int) ([]protocol.Value, protocol.Value, bool) {
		return pop(c, key, at, count)
	}
	return command.Pops{Kind: keyspace.KindList, Take: take, Reply: protocol.Array}
}

func parseSidePop(word string) (p command.Pops, ok bool) {
	at, ok := parseSide(word)
	return popsList(at), ok
}

func blmoveOp(c *command.Call) protocol.Value {
	from, ok1 := parseSide(c.Args[3])
	to, ok2 := parseSide(c.Args[4])
	if !ok1 || !ok2 {
		return command.ErrSyntax
	}
	return moveOrWait(c, from, to, c.Args[5])
}

func brpoplpushOp(c *command.Call) protocol.Value { return moveOrWait(c, right, left, c.Args[3]) }

// moveOrWait is BLMOVE or BRPOPLPUSH.
func moveOrWait(c *command.Call, from, to side, timeout string) protocol.Value {
	deadlineMillis, problem, ok := c.WaitUntil(timeout)
	if !ok {
		return problem
	}
	if reply := moveElement(c, c.Args[1], c.Args[2], from, to); reply.Kind != protocol.KindNull {
		return reply
	}
	return c.Wait(keyspace.KindList, 1, 1, deadlineMillis, protocol.Null)
}

// Ops has the commands for lists.
var Ops = map[string]command.Op{
	"blmove":     blmoveOp,
	"blmpop":     command.With((*command.Call).PopManyOrWait, parseSidePop),
	"blpop":      command.With((*command.Call).PopFirst, popsList(left)),
	"brpop":      command.With((*command.Call).PopFirst, popsList(right)),
	"brpoplpush": brpoplpushOp,
	"lindex":     lindexOp,
	"linsert":    linsertOp,
	"llen":       command.LengthOf[*collection.List],
	"lmove":      lmoveOp,
	"lmpop":      command.With((*command.Call).PopManyNow, parseSidePop),
	"lpop":       command.With(popOne, left),
	"lpos":       lposOp,
	"lpush":      lpushOp,
	"lpushx":     lpushxOp,
	"lrange":     lrangeOp,
	"lrem":       lremOp,
	"lset":       lsetOp,
	"ltrim":      ltrimOp,
	"rpop":       command.With(popOne, right),
	"rpoplpush":  rpoplpushOp,
	"rpush":      rpushOp,
	"rpushx":     rpushxOp,
}

// side is an end of a list.
type side bool

const (
	left  side = false
	right side = true
)

// event returns the name of the event for the side.
func (s side) event(ofLeft, ofRight string) string {
	if s == right {
		return ofRight
	}
	return ofLeft
}

func lpushOp(c *command.Call) protocol.Value  { return pushAll(c, left, false) }
func rpushOp(c *command.Call) protocol.Value  { return pushAll(c, right, false) }
func lpushxOp(c *command.Call) protocol.Value { return pushAll(c, left, true) }
func rpushxOp(c *command.Call) protocol.Value { return pushAll(c, right, true) }

// pushAll is LPUSH, RPUSH, LPUSHX or RPUSHX.
func pushAll(c *command.Call, at side, onlyIfThere bool) protocol.Value {
	key, values := c.Args[1], c.Args[2:]
	bytes := 0
	for _, v := range values {
		if command.TooLong(v) {
			return command.ErrTooLong
		}
		bytes += len(v)
	}
	if onlyIfThere {
		if _, there, ok := readList(c); !ok {
			return command.ErrWrongType
		} else if !there {
			return command.Zero
		}
	}
	if problem, ok := c.Charge(int64(bytes)); !ok {
		return problem
	}
	e, ok := command.Open(c, key, collection.NewList)
	if !ok {
		return command.ErrWrongType
	}
	e.V.Expect(bytes)
	for _, v := range values {
		at.push(e.V, v)
	}
	n := e.V.Len()
	e.KeepAs(event.ClassList, at.event("lpush", "rpush"))
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

// popOne is LPOP or RPOP.
func popOne(c *command.Call, at side) protocol.Value {
	if len(c.Args) > 3 {
		return command.ErrArity(c.Args[0])
	}
	count, counted, ok := c.PopCount()
	if !ok {
		return command.ErrNotPositive
	}
	l, there, ok := readList(c)
	switch {
	case !ok:
		return command.ErrWrongType
	case !there && counted:
		return protocol.NullArray
	case !there:
		return protocol.Null
	case count == 0:
		return protocol.Array()
	}
	elems, problem, ok := pop(c, c.Args[1], at, int(min(count, int64(l.Len()))))
	switch {
	case !ok:
		return problem
	case !counted:
		return elems[0]
	}
	return protocol.Array(elems...)
}

// pop charges for count elements and pops them from an end of the list of key.
//
// Requires: the list has count elements.
func pop(c *command.Call, key string, at side, count int) (elems []protocol.Value, problem protocol.Value, ok bool) {
	if problem, ok = c.Charge(int64(count-1) * command.ElementWork); !ok {
		return nil, problem, false
	}
	return take(c, key, at, count), problem, true
}

// take is pop without the charge.
func take(c *command.Call, key string, at side, count int) []protocol.Value {
	e, _ := command.Open(c, key, collection.NewList)
	elems := make([]protocol.Value, count)
	for i := range elems {
		elems[i] = protocol.Bulk(at.pop(e.V))
	}
	e.KeepAs(event.ClassList, at.event("lpop", "rpop"))
	return elems
}

// parseSide reads LEFT or RIGHT.
func parseSide(word string) (s side, ok bool) {
	switch {
	case command.IsWord(word, "LEFT"):
		return left, true
	case command.IsWord(word, "RIGHT"):
		return right, true
	}
	return left, false
}

func lmoveOp(c *command.Call) protocol.Value {
	from, ok1 := parseSide(c.Args[3])
	to, ok2 := parseSide(c.Args[4])
	if !ok1 || !ok2 {
		return command.ErrSyntax
	}
	return moveElement(c, c.Args[1], c.Args[2], from, to)
}

func rpoplpushOp(c *command.Call) protocol.Value {
	return moveElement(c, c.Args[1], c.Args[2], right, left)
}

// moveElement is LMOVE. The reply is null only if there is no element.
func moveElement(c *command.Call, source, destination string, from, to side) protocol.Value {
	l, there, ok := command.Read[*collection.List](c, source)
	switch {
	case !ok:
		return command.ErrWrongType
	case !there:
		return protocol.Null
	}
	if _, _, ok := command.Read[*collection.List](c, destination); !ok {
		return command.ErrWrongType
	}
	if !c.Affords(2) {
		return command.ErrOverWork
	}
	if source == destination {
		return rotate(c, source, from, to)
	}
	v := l.Index(0)
	if from == right {
		v = l.Index(l.Len() - 1)
	}
	if problem, ok := c.Charge(2 * int64(len(v))); !ok {
		return problem
	}
	d, _ := command.Open(c, destination, collection.NewList)
	to.push(d.V, v)
	d.KeepAs(event.ClassList, to.event("lpush", "rpush"))
	return take(c, source, from, 1)[0]
}

// rotate moves an element from one end of a list to an end of the same list.
func rotate(c *command.Call, key string, from, to side) protocol.Value {
	e, _ := command.Open(c, key, collection.NewList)
	v := from.pop(e.V)
	c.Spend(2 * int64(len(v)))
	to.push(e.V, v)
	e.Keep()
	c.Notify(event.ClassList, to.event("lpush", "rpush"), key)
	c.Notify(event.ClassList, from.event("lpop", "rpop"), key)
	return protocol.Bulk(v)
}
