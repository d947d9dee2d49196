package fsm

import (
	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/protocol"
)

// runWork is the work of a change inside a list, which rewrites a run of the elements.
const runWork = 4 << 10

func lsetOp(c *call) protocol.Value {
	key, v := c.args[1], c.args[3]
	if tooLong(v) {
		return errTooLong
	}
	l, reply, ok := c.theList(errNoSuchKey)
	if !ok {
		return reply
	}
	i, ok := protocol.ParseInt(c.args[2])
	if !ok {
		return errNotInteger
	}
	at, ok := indexOf(i, l.Len())
	if !ok {
		return protocol.Err("index out of range")
	}
	if problem, ok := c.charge(runWork + int64(len(v))); !ok {
		return problem
	}
	e, _ := open(c, key, collection.NewList)
	e.V.Set(at, v)
	e.keep()
	c.notify(classList, "lset", key)
	return protocol.OK
}

func linsertOp(c *call) protocol.Value {
	key, pivot, v := c.args[1], c.args[3], c.args[4]
	behind := isWord(c.args[2], "AFTER")
	if !behind && !isWord(c.args[2], "BEFORE") {
		return errSyntax
	}
	if tooLong(v) {
		return errTooLong
	}
	l, reply, ok := c.theList(zero)
	if !ok {
		return reply
	}
	found, problem, ok := c.positions(l, pivot, &positions{rank: 1, count: 1})
	switch {
	case !ok:
		return problem
	case len(found) == 0:
		return protocol.Integer(-1)
	}
	if problem, ok := c.charge(runWork + int64(len(v))); !ok {
		return problem
	}
	at := int(found[0].Num)
	if behind {
		at++
	}
	e, _ := open(c, key, collection.NewList)
	if at == l.Len() {
		e.V.PushBack(v)
	} else {
		e.V.Insert(at, v)
	}
	n := e.V.Len()
	e.keep()
	c.notify(classList, "linsert", key)
	return protocol.Integer(int64(n))
}

func lremOp(c *call) protocol.Value {
	key, word := c.args[1], c.args[3]
	count, ok := protocol.ParseInt(c.args[2])
	if !ok {
		return errNotInteger
	}
	l, reply, ok := c.theList(zero)
	if !ok {
		return reply
	}
	indexes, problem, ok := c.equals(l, word, count)
	switch {
	case !ok:
		return problem
	case len(indexes) == 0:
		return zero
	}
	e, _ := open(c, key, collection.NewList)
	e.V.RemoveAll(indexes)
	e.keep()
	c.notify(classList, "lrem", key)
	c.notifyGone(key, e.V)
	return protocol.Integer(int64(len(indexes)))
}

// equals are the indexes of up to count elements that are equal to word, in ascending order: of the
// last ones if count is negative, of all if count is 0.
func (c *call) equals(l *collection.List, word string, count int64) (indexes []int, problem protocol.Value, ok bool) {
	s := c.search()
	at, step, walk := 0, 1, l.Ascend
	if count < 0 {
		at, step, walk = l.Len()-1, -1, l.Descend
	}
	walk(at, func(v string) bool {
		if !s.passes(v, word) {
			return false
		}
		if v == word {
			indexes = append(indexes, at)
			s.finds()
		}
		at += step
		return int64(len(indexes)*step) != count || count == 0
	})
	if problem, ok = s.ended(); !ok || len(indexes) == 0 {
		return nil, problem, ok
	}
	if problem, ok = c.charge(runWork); !ok {
		return nil, problem, false
	}
	if count < 0 {
		for i, j := 0, len(indexes)-1; i < j; i, j = i+1, j-1 {
			indexes[i], indexes[j] = indexes[j], indexes[i]
		}
	}
	return indexes, problem, true
}

func ltrimOp(c *call) protocol.Value {
	key := c.args[1]
	first, last, ok := parseIndexes(c.args[2], c.args[3])
	if !ok {
		return errNotInteger
	}
	l, reply, ok := c.theList(protocol.OK)
	if !ok {
		return reply
	}
	from, to := stretch(first, last, l.Len())
	if from < to {
		if problem, ok := c.charge(int64(l.Len()-(to-from)) * passWork); !ok {
			return problem
		}
	}
	e, _ := open(c, key, collection.NewList)
	if from < to {
		e.V.Trim(from, to)
	} else {
		e.V = collection.NewList()
	}
	e.keep()
	c.notify(classList, "ltrim", key)
	c.notifyGone(key, e.V)
	return protocol.OK
}
