package fsm

import (
	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/protocol"
)

// rangeKind says what the bounds of a range of members are.
type rangeKind uint8

const (
	kindOpen rangeKind = iota // an option says
	byIndex
	byScore
	byName
)

// memberRange is a range of members, as ZRANGE and its like ask for it.
type memberRange struct {
	kind        rangeKind
	reverse     bool
	fixed       bool // the command says whether it is reverse
	withScores  bool
	store       bool
	offset      int64
	limit       int64 // -1: none
	first, last int64 // of byIndex
	scores      scoreRange
	names       nameRange
}

// parseRange reads two bounds and options.
func (m *memberRange) parseRange(words []string) (problem protocol.Value, ok bool) {
	m.limit = -1
	if problem, ok = m.parseOptions(words[2:]); !ok {
		return problem, false
	}
	if m.kind == kindOpen {
		m.kind = byIndex
	}
	switch {
	case m.limit != -1 && m.kind == byIndex:
		return protocol.Err("syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"), false
	case m.withScores && m.kind == byName:
		return protocol.Err("syntax error, WITHSCORES not supported in combination with BYLEX"), false
	}
	return m.parseBounds(words[0], words[1])
}

func (m *memberRange) parseOptions(words []string) (problem protocol.Value, ok bool) {
	for len(words) > 0 {
		switch {
		case isWord(words[0], "WITHSCORES") && !m.store:
			m.withScores = true
		case isWord(words[0], "LIMIT") && len(words) > 2:
			if m.offset, m.limit, ok = parseIndexes(words[1], words[2]); !ok {
				return errNotInteger, false
			}
			words = words[2:]
		case isWord(words[0], "REV") && !m.fixed && !m.reverse:
			m.reverse = true
		case isWord(words[0], "BYLEX") && m.kind == kindOpen:
			m.kind = byName
		case isWord(words[0], "BYSCORE") && m.kind == kindOpen:
			m.kind = byScore
		default:
			return errSyntax, false
		}
		words = words[1:]
	}
	return problem, true
}

func (m *memberRange) parseBounds(low, high string) (problem protocol.Value, ok bool) {
	if m.reverse && m.kind != byIndex {
		low, high = high, low
	}
	switch m.kind {
	case byScore:
		m.scores, ok = parseScoreRange(low, high)
		problem = errNoFloatRange
	case byName:
		m.names, ok = parseNameRange(low, high)
		problem = errNoNameRange
	default:
		m.first, m.last, ok = parseIndexes(low, high)
		problem = errNotInteger
	}
	return problem, ok
}

// span is the part of z that is in the range, in ascending order, without the limit.
func (m *memberRange) span(z *collection.SortedSet) (from, to int) {
	switch m.kind {
	case byScore:
		return z.Search(m.scores.reached), z.Search(m.scores.passed)
	case byName:
		return m.nameSpan(z)
	}
	from, to = stretch(m.first, m.last, z.Len())
	if m.reverse {
		return z.Len() - to, z.Len() - from
	}
	return from, to
}

// nameSpan is span by names. Members of different scores are not in the order of their names. Redis then
// gives of a small sorted set the members from the first that the range has reached to the first that has
// passed, and backwards likewise; of a large one, what its search meets.
func (m *memberRange) nameSpan(z *collection.SortedSet) (from, to int) {
	if !z.Small() || z.Len() == 0 {
		return z.Search(m.names.reached), z.Search(m.names.passed)
	}
	first, _ := z.At(0)
	last, _ := z.At(z.Len() - 1)
	switch {
	case !m.names.reached(last, 0) || m.names.passed(first, 0):
		return 0, 0
	case m.reverse:
		to = z.Len()
		z.Descend(to-1, func(member string, _ float64) bool {
			if m.names.passed(member, 0) {
				to--
			}
			return m.names.passed(member, 0)
		})
		from = to
		z.Descend(to-1, func(member string, _ float64) bool {
			if m.names.reached(member, 0) {
				from--
			}
			return m.names.reached(member, 0)
		})
		return from, to
	}
	from = z.Search(m.names.reached)
	to = from
	z.Ascend(from, func(member string, _ float64) bool {
		if !m.names.passed(member, 0) {
			to++
		}
		return !m.names.passed(member, 0)
	})
	return from, to
}

// limited is span with LIMIT.
func (m *memberRange) limited(z *collection.SortedSet) (from, to int) {
	from, to = m.span(z)
	n := int64(to - from)
	if m.kind == byIndex || n <= 0 {
		return from, max(from, to)
	}
	if m.offset < 0 || m.offset >= n {
		return from, from
	}
	rest := n - m.offset
	if m.limit >= 0 {
		rest = min(rest, m.limit)
	}
	if m.reverse {
		to -= int(m.offset)
		return to - int(rest), to
	}
	from += int(m.offset)
	return from, from + int(rest)
}

// members calls f with the members of a part of z, from the last if the range is reverse.
func (m *memberRange) members(z *collection.SortedSet, from, to int, f func(member string, score float64)) {
	n := to - from
	if n <= 0 {
		return
	}
	each := func(member string, score float64) bool {
		f(member, score)
		n--
		return n > 0
	}
	if m.reverse {
		z.Descend(to-1, each)
		return
	}
	z.Ascend(from, each)
}

func zrangeOp(c *call) protocol.Value { return c.rangeMembers(&memberRange{}) }
func zrevrangeOp(c *call) protocol.Value {
	return c.rangeMembers(&memberRange{kind: byIndex, fixed: true, reverse: true})
}

func zrangebyscoreOp(c *call) protocol.Value {
	return c.rangeMembers(&memberRange{kind: byScore, fixed: true})
}

func zrevrangebyscoreOp(c *call) protocol.Value {
	return c.rangeMembers(&memberRange{kind: byScore, fixed: true, reverse: true})
}

func zrangebylexOp(c *call) protocol.Value {
	return c.rangeMembers(&memberRange{kind: byName, fixed: true})
}

func zrevrangebylexOp(c *call) protocol.Value {
	return c.rangeMembers(&memberRange{kind: byName, fixed: true, reverse: true})
}

// rangeMembers is ZRANGE and its like.
func (c *call) rangeMembers(m *memberRange) protocol.Value {
	if problem, ok := m.parseRange(c.args[2:]); !ok {
		return problem
	}
	z, reply, ok := c.theScored(protocol.Array())
	if !ok {
		return reply
	}
	from, to := m.limited(z)
	each := int64(elementWork)
	if m.withScores {
		each *= 2
	}
	if problem, ok := c.charge(searchesIn(z, 2) + int64(to-from)*each); !ok {
		return problem
	}
	return m.reply(z, from, to)
}

// reply is the members of a part of z.
func (m *memberRange) reply(z *collection.SortedSet, from, to int) protocol.Value {
	elems := make([]protocol.Value, 0, 2*max(0, to-from))
	m.members(z, from, to, func(member string, score float64) {
		elems = append(elems, protocol.Bulk(member))
		if m.withScores {
			elems = append(elems, protocol.Double(score))
		}
	})
	if m.withScores {
		return protocol.Pairs(elems...)
	}
	return protocol.Array(elems...)
}

func zrangestoreOp(c *call) protocol.Value {
	m := memberRange{store: true}
	if problem, ok := m.parseRange(c.args[3:]); !ok {
		return problem
	}
	z, there, ok := look[*collection.SortedSet](c, c.args[2])
	if !ok {
		return errWrongType
	}
	var result collection.Gathering
	if there {
		from, to := m.limited(z)
		if problem, ok := c.charge(int64(to-from) * gatherWork); !ok {
			return problem
		}
		m.members(z, from, to, result.Add)
	}
	c.storeCollection(c.args[1], c.args[0], result.SortedSet(), classZset)
	return protocol.Integer(int64(result.Len()))
}

func zcountOp(c *call) protocol.Value    { return c.countMembers(&memberRange{kind: byScore}) }
func zlexcountOp(c *call) protocol.Value { return c.countMembers(&memberRange{kind: byName}) }

func (c *call) countMembers(m *memberRange) protocol.Value {
	if problem, ok := m.parseBounds(c.args[2], c.args[3]); !ok {
		return problem
	}
	z, reply, ok := c.theScored(zero)
	if !ok {
		return reply
	}
	if problem, ok := c.charge(searchesIn(z, 2)); !ok {
		return problem
	}
	from, to := m.span(z)
	return protocol.Integer(int64(max(0, to-from)))
}

func zremrangebyrankOp(c *call) protocol.Value { return c.removeScored(&memberRange{kind: byIndex}) }

func zremrangebyscoreOp(c *call) protocol.Value { return c.removeScored(&memberRange{kind: byScore}) }

func zremrangebylexOp(c *call) protocol.Value { return c.removeScored(&memberRange{kind: byName}) }

func (c *call) removeScored(m *memberRange) protocol.Value {
	key := c.args[1]
	if problem, ok := m.parseBounds(c.args[2], c.args[3]); !ok {
		return problem
	}
	z, reply, ok := c.theScored(zero)
	if !ok {
		return reply
	}
	from, to := m.span(z)
	if to <= from {
		return zero
	}
	if problem, ok := c.charge(searchesIn(z, 2) + scoredChanges(z, to-from, 0)); !ok {
		return problem
	}
	e, _ := open(c, key, collection.NewSortedSet)
	e.V.RemoveRange(from, to)
	e.keep()
	c.notify(classZset, c.args[0], key)
	c.notifyGone(key, e.V)
	return protocol.Integer(int64(to - from))
}
