package fsm

import (
	"math"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/protocol"
)

// lookList is [look] for a list.
func (c *call) lookList() (l *collection.List, there, ok bool) {
	return look[*collection.List](c, c.args[1])
}

// theList is [lookOr] for a list.
func (c *call) theList(missing protocol.Value) (l *collection.List, reply protocol.Value, ok bool) {
	return lookOr[*collection.List](c, c.args[1], missing)
}

func llenOp(c *call) protocol.Value {
	l, reply, ok := c.theList(zero)
	if !ok {
		return reply
	}
	return protocol.Integer(int64(l.Len()))
}

func lindexOp(c *call) protocol.Value {
	l, reply, ok := c.theList(protocol.Null)
	if !ok {
		return reply
	}
	i, ok := protocol.ParseInt(c.args[2])
	if !ok {
		return errNotInteger
	}
	at, ok := indexOf(i, l.Len())
	if !ok {
		return protocol.Null
	}
	return protocol.Bulk(l.Index(at))
}

// indexOf is the index that i means among n elements: a negative one counts from the end.
func indexOf(i int64, n int) (at int, ok bool) {
	if i < 0 {
		i += int64(n)
	}
	return int(i), 0 <= i && i < int64(n)
}

// stretch is the part of n elements that the first and the last index mean: from from to before to.
func stretch(first, last int64, n int) (from, to int) {
	if first < 0 {
		first = max(0, first+int64(n))
	}
	if last < 0 {
		last += int64(n)
	}
	if first > last || first >= int64(n) {
		return 0, 0
	}
	return int(first), int(min(last, int64(n)-1)) + 1
}

// stretchOfBytes is stretch for strings: a last index before the beginning is the first.
func stretchOfBytes(first, last int64, n int) (from, to int) {
	return stretch(first, max(last, -int64(n)), n)
}

// parseIndexes reads two indexes.
func parseIndexes(first, last string) (a, b int64, ok bool) {
	a, ok1 := protocol.ParseInt(first)
	b, ok2 := protocol.ParseInt(last)
	return a, b, ok1 && ok2
}

func lrangeOp(c *call) protocol.Value {
	first, last, ok := parseIndexes(c.args[2], c.args[3])
	if !ok {
		return errNotInteger
	}
	l, reply, ok := c.theList(protocol.Array())
	if !ok {
		return reply
	}
	from, to := stretch(first, last, l.Len())
	if from == to {
		return protocol.Array()
	}
	if problem, ok := c.charge(int64(to-from) * elementWork); !ok {
		return problem
	}
	elems := make([]protocol.Value, 0, to-from)
	l.Ascend(from, func(v string) bool {
		elems = append(elems, protocol.Bulk(v))
		return len(elems) < to-from
	})
	return protocol.Array(elems...)
}

// positions are the options of LPOS.
type positions struct {
	rank, count, most int64
	counted           bool
}

func parsePositions(words []string) (p positions, problem protocol.Value, ok bool) {
	p.rank, p.count = 1, 1
	for len(words) > 0 {
		if len(words) < 2 {
			return p, errSyntax, false
		}
		n, isNumber := protocol.ParseInt(words[1])
		switch {
		case isWord(words[0], "RANK"):
			if p.rank = n; !isNumber || n == 0 || n == math.MinInt64 {
				return p, errRank(n, isNumber), false
			}
		case isWord(words[0], "COUNT"):
			if p.count, p.counted = n, true; !isNumber || n < 0 {
				return p, protocol.Err("COUNT can't be negative"), false
			}
		case isWord(words[0], "MAXLEN"):
			if p.most = n; !isNumber || n < 0 {
				return p, protocol.Err("MAXLEN can't be negative"), false
			}
		default:
			return p, errSyntax, false
		}
		words = words[2:]
	}
	return p, problem, true
}

// errRank is the error for an invalid RANK of LPOS.
func errRank(n int64, isNumber bool) protocol.Value {
	switch {
	case !isNumber:
		return errNotInteger
	case n == 0:
		return protocol.Err("RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use " +
			"negative to start from the end of the list")
	}
	return protocol.Err("value is out of range, value must between -9223372036854775807 and 9223372036854775807")
}

func lposOp(c *call) protocol.Value {
	p, problem, ok := parsePositions(c.args[3:])
	if !ok {
		return problem
	}
	l, there, ok := c.lookList()
	switch {
	case !ok:
		return errWrongType
	case !there && p.counted:
		return protocol.Array()
	case !there:
		return protocol.Null
	}
	found, problem, ok := c.positions(l, c.args[2], &p)
	switch {
	case !ok:
		return problem
	case p.counted:
		return protocol.Array(found...)
	case len(found) == 0:
		return protocol.Null
	}
	return found[0]
}

// positions finds the indexes of the elements that are equal to word.
func (c *call) positions(l *collection.List, word string, p *positions) (found []protocol.Value,
	problem protocol.Value, ok bool,
) {
	n, at, step, rank := l.Len(), 0, 1, p.rank
	walk := l.Ascend
	if rank < 0 {
		at, step, rank, walk = n-1, -1, -rank, l.Descend
	}
	s, passed := c.search(), int64(0)
	walk(at, func(v string) bool {
		if !s.passes(v, word) {
			return false
		}
		if v == word {
			if rank--; rank <= 0 {
				found = append(found, protocol.Integer(int64(at)))
				s.finds()
			}
		}
		at += step
		passed++
		return (p.count == 0 || int64(len(found)) < p.count) && (p.most == 0 || passed < p.most)
	})
	problem, ok = s.ended()
	return found, problem, ok
}
