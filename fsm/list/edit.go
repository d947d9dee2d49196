package list

import (
	"math"
	"slices"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
)

func readList(c *command.Call) (l *collection.List, there, ok bool) {
	return command.Read[*collection.List](c, c.Args[1])
}

func theList(c *command.Call, missing protocol.Value) (l *collection.List, reply protocol.Value, ok bool) {
	return command.ReadOr[*collection.List](c, c.Args[1], missing)
}

func lindexOp(c *command.Call) protocol.Value {
	l, reply, ok := theList(c, protocol.Null)
	if !ok {
		return reply
	}
	i, ok := protocol.ParseInt(c.Args[2])
	if !ok {
		return command.ErrNotInteger
	}
	at, ok := indexOf(i, l.Len())
	if !ok {
		return protocol.Null
	}
	return protocol.Bulk(l.Index(at))
}

// indexOf converts an index of n elements, which may count from the end. ok reports whether it is in range.
func indexOf(i int64, n int) (at int, ok bool) {
	if i < 0 {
		i += int64(n)
	}
	return int(i), 0 <= i && i < int64(n)
}

func lrangeOp(c *command.Call) protocol.Value {
	first, last, ok := command.ParseIndexes(c.Args[2], c.Args[3])
	if !ok {
		return command.ErrNotInteger
	}
	l, reply, ok := theList(c, protocol.Array())
	if !ok {
		return reply
	}
	from, to := command.ElementRange(first, last, l.Len())
	if from == to {
		return protocol.Array()
	}
	if problem, ok := c.Charge(int64(to-from) * command.ElementWork); !ok {
		return problem
	}
	elems := make([]protocol.Value, 0, to-from)
	l.Ascend(from, func(v string) bool {
		elems = append(elems, protocol.Bulk(v))
		return len(elems) < to-from
	})
	return protocol.Array(elems...)
}

// search has the options of LPOS. A count or maxLen of 0 is no limit.
type search struct {
	rank, count, maxLen int64
	hasCount            bool
}

func parsePositions(words []string) (p search, problem protocol.Value, ok bool) {
	p.rank, p.count = 1, 1
	for len(words) > 0 {
		if len(words) < 2 {
			return p, command.ErrSyntax, false
		}
		n, isNumber := protocol.ParseInt(words[1])
		switch {
		case command.IsWord(words[0], "RANK"):
			if p.rank = n; !isNumber || n == 0 || n == math.MinInt64 {
				return p, errRank(n, isNumber), false
			}
		case command.IsWord(words[0], "COUNT"):
			if p.count, p.hasCount = n, true; !isNumber || n < 0 {
				return p, protocol.Err("COUNT can't be negative"), false
			}
		case command.IsWord(words[0], "MAXLEN"):
			if p.maxLen = n; !isNumber || n < 0 {
				return p, protocol.Err("MAXLEN can't be negative"), false
			}
		default:
			return p, command.ErrSyntax, false
		}
		words = words[2:]
	}
	return p, problem, true
}

// errRank is the error for an invalid RANK of LPOS.
func errRank(n int64, isNumber bool) protocol.Value {
	switch {
	case !isNumber:
		return command.ErrNotInteger
	case n == 0:
		return protocol.Err("RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use " +
			"negative to start from the end of the list")
	}
	return protocol.Err("value is out of range, value must between -9223372036854775807 and 9223372036854775807")
}

func lposOp(c *command.Call) protocol.Value {
	p, problem, ok := parsePositions(c.Args[3:])
	if !ok {
		return problem
	}
	l, there, ok := readList(c)
	switch {
	case !ok:
		return command.ErrWrongType
	case !there && p.hasCount:
		return protocol.Array()
	case !there:
		return protocol.Null
	}
	found, problem, ok := positions(c, l, c.Args[2], &p)
	switch {
	case !ok:
		return problem
	case p.hasCount:
		return protocol.Array(found...)
	case len(found) == 0:
		return protocol.Null
	}
	return found[0]
}

// positions returns the indexes of the elements equal to word, as the options select them.
func positions(c *command.Call, l *collection.List, word string, p *search) (found []protocol.Value,
	problem protocol.Value, ok bool,
) {
	n, at, step, rank := l.Len(), 0, 1, p.rank
	walk := l.Ascend
	if rank < 0 {
		at, step, rank, walk = n-1, -1, -rank, l.Descend
	}
	s, passed := c.Search(), int64(0)
	walk(at, func(v string) bool {
		if !s.Passes(v, word) {
			return false
		}
		if v == word {
			if rank--; rank <= 0 {
				found = append(found, protocol.Integer(int64(at)))
				s.Finds()
			}
		}
		at += step
		passed++
		return (p.count == 0 || int64(len(found)) < p.count) && (p.maxLen == 0 || passed < p.maxLen)
	})
	problem, ok = s.Ended()
	return found, problem, ok
}

// runWork is the work of a change inside a list, which rewrites a run of the elements.
const runWork = 4 << 10

func lsetOp(c *command.Call) protocol.Value {
	key, v := c.Args[1], c.Args[3]
	if command.TooLong(v) {
		return command.ErrTooLong
	}
	l, reply, ok := theList(c, command.ErrNoSuchKey)
	if !ok {
		return reply
	}
	i, ok := protocol.ParseInt(c.Args[2])
	if !ok {
		return command.ErrNotInteger
	}
	at, ok := indexOf(i, l.Len())
	if !ok {
		return protocol.Err("index out of range")
	}
	if problem, ok := c.Charge(runWork + int64(len(v))); !ok {
		return problem
	}
	e, _ := command.Open(c, key, collection.NewList)
	e.V.Set(at, v)
	e.KeepAs(event.ClassList, "lset")
	return protocol.OK
}

func linsertOp(c *command.Call) protocol.Value {
	key, pivot, v := c.Args[1], c.Args[3], c.Args[4]
	after := command.IsWord(c.Args[2], "AFTER")
	if !after && !command.IsWord(c.Args[2], "BEFORE") {
		return command.ErrSyntax
	}
	if command.TooLong(v) {
		return command.ErrTooLong
	}
	l, reply, ok := theList(c, command.Zero)
	if !ok {
		return reply
	}
	found, problem, ok := positions(c, l, pivot, &search{rank: 1, count: 1})
	switch {
	case !ok:
		return problem
	case len(found) == 0:
		return protocol.Integer(-1)
	}
	if problem, ok := c.Charge(runWork + int64(len(v))); !ok {
		return problem
	}
	at := int(found[0].Num)
	if after {
		at++
	}
	e, _ := command.Open(c, key, collection.NewList)
	if at == l.Len() {
		e.V.PushBack(v)
	} else {
		e.V.Insert(at, v)
	}
	n := e.V.Len()
	e.KeepAs(event.ClassList, "linsert")
	return protocol.Integer(int64(n))
}

func lremOp(c *command.Call) protocol.Value {
	key, word := c.Args[1], c.Args[3]
	count, ok := protocol.ParseInt(c.Args[2])
	if !ok {
		return command.ErrNotInteger
	}
	l, reply, ok := theList(c, command.Zero)
	if !ok {
		return reply
	}
	indexes, problem, ok := matches(c, l, word, count)
	switch {
	case !ok:
		return problem
	case len(indexes) == 0:
		return command.Zero
	}
	e, _ := command.Open(c, key, collection.NewList)
	e.V.RemoveAll(indexes)
	e.KeepAs(event.ClassList, "lrem")
	return protocol.Integer(int64(len(indexes)))
}

// matches returns the ascending indexes of the first count elements equal to word: the last -count if count is
// negative, all if it is 0.
func matches(c *command.Call, l *collection.List, word string, count int64) (indexes []int, problem protocol.Value,
	ok bool,
) {
	s := c.Search()
	at, step, walk := 0, 1, l.Ascend
	if count < 0 {
		at, step, walk = l.Len()-1, -1, l.Descend
	}
	walk(at, func(v string) bool {
		if !s.Passes(v, word) {
			return false
		}
		if v == word {
			indexes = append(indexes, at)
			s.Finds()
		}
		at += step
		return int64(len(indexes)*step) != count || count == 0
	})
	if problem, ok = s.Ended(); !ok || len(indexes) == 0 {
		return nil, problem, ok
	}
	if problem, ok = c.Charge(runWork); !ok {
		return nil, problem, false
	}
	if count < 0 {
		slices.Reverse(indexes)
	}
	return indexes, problem, true
}

func ltrimOp(c *command.Call) protocol.Value {
	key := c.Args[1]
	first, last, ok := command.ParseIndexes(c.Args[2], c.Args[3])
	if !ok {
		return command.ErrNotInteger
	}
	l, reply, ok := theList(c, protocol.OK)
	if !ok {
		return reply
	}
	from, to := command.ElementRange(first, last, l.Len())
	if from < to {
		if problem, ok := c.Charge(int64(l.Len()-(to-from)) * command.PassWork); !ok {
			return problem
		}
	}
	e, _ := command.Open(c, key, collection.NewList)
	if from < to {
		e.V.Trim(from, to)
	} else {
		e.V = collection.NewList()
	}
	e.KeepAs(event.ClassList, "ltrim")
	return protocol.OK
}
