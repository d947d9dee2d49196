package zset

import (
	"math"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
)

func readScored(c *command.Call) (z *collection.SortedSet, there, ok bool) {
	return command.Read[*collection.SortedSet](c, c.Args[1])
}

func theScored(c *command.Call, missing protocol.Value) (z *collection.SortedSet, reply protocol.Value, ok bool) {
	return command.ReadOr[*collection.SortedSet](c, c.Args[1], missing)
}

func zscoreOp(c *command.Call) protocol.Value {
	z, reply, ok := theScored(c, protocol.Null)
	if !ok {
		return reply
	}
	return scoreOf(z, c.Args[2])
}

func scoreOf(z *collection.SortedSet, member string) protocol.Value {
	if score, ok := z.Score(member); ok {
		return protocol.Double(score)
	}
	return protocol.Null
}

func zmscoreOp(c *command.Call) protocol.Value {
	z, there, ok := readScored(c)
	if !ok {
		return command.ErrWrongType
	}
	members := c.Args[2:]
	elems := make([]protocol.Value, len(members))
	if !there {
		return protocol.Array(elems...)
	}
	if problem, ok := c.Charge(command.SearchesIn(z, len(members))); !ok {
		return problem
	}
	for i, member := range members {
		elems[i] = scoreOf(z, member)
	}
	return protocol.Array(elems...)
}

func rank(c *command.Call, reverse bool) protocol.Value {
	withScore := len(c.Args) > 3
	missing := protocol.Null
	switch {
	case len(c.Args) > 4:
		return command.ErrArity(c.Args[0])
	case withScore && !command.IsWord(c.Args[3], "WITHSCORE"):
		return command.ErrSyntax
	case withScore:
		missing = protocol.NullArray
	}
	z, reply, ok := theScored(c, missing)
	if !ok {
		return reply
	}
	if problem, ok := c.Charge(command.SearchesIn(z, 2)); !ok {
		return problem
	}
	rank, ok := z.Rank(c.Args[2])
	if !ok {
		return missing
	}
	if reverse {
		rank = z.Len() - 1 - rank
	}
	if !withScore {
		return protocol.Integer(int64(rank))
	}
	return protocol.Array(protocol.Integer(int64(rank)), scoreOf(z, c.Args[2]))
}

func zrandmemberOp(c *command.Call) protocol.Value {
	if len(c.Args) > 2 {
		return randomMembers(c)
	}
	z, reply, ok := theScored(c, protocol.Null)
	if !ok {
		return reply
	}
	member, _ := z.At(c.Draw(z.Len()))
	return protocol.Bulk(member)
}

// randomMembers is ZRANDMEMBER with a count.
func randomMembers(c *command.Call) protocol.Value {
	count, withScores, problem, ok := c.DrawPairs("WITHSCORES")
	if !ok {
		return problem
	}
	z, there, ok := readScored(c)
	switch {
	case !ok:
		return command.ErrWrongType
	case !there || count == 0:
		return protocol.Array()
	}
	if problem, ok := c.ChargeDrawn(count, z, 2); !ok {
		return problem
	}
	var elems []protocol.Value
	take := func(member string, score float64) bool {
		elems = append(elems, protocol.Bulk(member))
		if withScores {
			elems = append(elems, protocol.Double(score))
		}
		return true
	}
	if count >= int64(z.Len()) {
		z.Descend(z.Len()-1, take) // all, from the last as in Redis
	} else {
		for _, place := range c.Drawn(count, z.Len()) {
			take(z.At(place))
		}
	}
	if withScores {
		return protocol.Pairs(elems...)
	}
	return protocol.Array(elems...)
}

func zscanOp(c *command.Call) protocol.Value {
	return command.ScanElements(c, func(z *collection.SortedSet, cursor uint64, s *command.ElementScan) {
		s.TakesPairs, s.Count = true, min(s.Count, maxScanned)
		from, ok := command.ScanFrom(cursor)
		if !ok && !z.Small() {
			return
		}
		z.Scan(from, func(hash uint64, member string, score float64) bool {
			c.Spend(formatWork)
			return s.Visit(hash, member, scannedScore(z, score))
		})
	})
}

const (
	// formatWork is the work of writing a score.
	formatWork = 512
	// maxScanned is the maximum of COUNT. A larger COUNT has the same effect.
	maxScanned = 1 << 17
)

// scannedScore formats a score for ZSCAN. As in Redis, scores of large sorted sets have 17 digits there.
func scannedScore(z *collection.SortedSet, score float64) string {
	if z.Small() || math.IsInf(score, 0) {
		return protocol.FormatDouble(score)
	}
	return protocol.FormatG(score, 17)
}

// rangeKind is the meaning of the bounds of a range of members.
type rangeKind uint8

const (
	kindUnset rangeKind = iota // an option may select another kind; the default is byIndex
	byIndex
	byScore
	byName
)

// memberRange is the range of ZRANGE or a similar command.
type memberRange struct {
	kind        rangeKind
	reverse     bool
	fixed       bool // the command does not take REV
	withScores  bool
	store       bool
	offset      int64
	limit       int64 // the count of LIMIT, or -1
	first, last int64 // the bounds of byIndex
	scores      scoreRange
	names       nameRange
}

// parseRange parses two bounds and options.
func (m *memberRange) parseRange(words []string) (problem protocol.Value, ok bool) {
	m.limit = -1
	if problem, ok = m.parseOptions(words[2:]); !ok {
		return problem, false
	}
	if m.kind == kindUnset {
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
		case command.IsWord(words[0], "WITHSCORES") && !m.store:
			m.withScores = true
		case command.IsWord(words[0], "LIMIT") && len(words) > 2:
			if m.offset, m.limit, ok = command.ParseIndexes(words[1], words[2]); !ok {
				return command.ErrNotInteger, false
			}
			words = words[2:]
		case command.IsWord(words[0], "REV") && !m.fixed && !m.reverse:
			m.reverse = true
		case command.IsWord(words[0], "BYLEX") && m.kind == kindUnset:
			m.kind = byName
		case command.IsWord(words[0], "BYSCORE") && m.kind == kindUnset:
			m.kind = byScore
		default:
			return command.ErrSyntax, false
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
		m.first, m.last, ok = command.ParseIndexes(low, high)
		problem = command.ErrNotInteger
	}
	return problem, ok
}

// span returns the ranks of the members in the range, without LIMIT: from inclusive, to exclusive, in ascending order.
func (m *memberRange) span(z *collection.SortedSet) (from, to int) {
	switch m.kind {
	case byScore:
		return z.Search(m.scores.reached), z.Search(m.scores.passed)
	case byName:
		return m.nameSpan(z)
	}
	from, to = command.ElementRange(m.first, m.last, z.Len())
	if m.reverse {
		return z.Len() - to, z.Len() - from
	}
	return from, to
}

// nameSpan is span for byName. If the scores differ, the names are not in order and the range is not defined, but the
// result is that of Redis: in a small sorted set the members from the first one inside of the lower bound to the next
// one outside of the upper bound, or the same in reverse; in a large one, whatever its binary searches find.
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

// members calls f with the members of these ranks, in the direction of the range.
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

// rangeMembers is ZRANGE or a similar command.
func rangeMembers(c *command.Call, m memberRange) protocol.Value {
	if problem, ok := m.parseRange(c.Args[2:]); !ok {
		return problem
	}
	z, reply, ok := theScored(c, protocol.Array())
	if !ok {
		return reply
	}
	from, to := m.limited(z)
	each := int64(command.ElementWork)
	if m.withScores {
		each *= 2
	}
	if problem, ok := c.Charge(command.SearchesIn(z, 2) + int64(to-from)*each); !ok {
		return problem
	}
	return m.reply(z, from, to)
}

// reply returns the members of these ranks as a reply.
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

func zrangestoreOp(c *command.Call) protocol.Value {
	m := memberRange{store: true}
	if problem, ok := m.parseRange(c.Args[3:]); !ok {
		return problem
	}
	z, there, ok := command.Read[*collection.SortedSet](c, c.Args[2])
	if !ok {
		return command.ErrWrongType
	}
	var result collection.Gathering
	if there {
		from, to := m.limited(z)
		if problem, ok := c.Charge(int64(to-from) * gatherWork); !ok {
			return problem
		}
		m.members(z, from, to, result.Add)
	}
	c.StoreCollection(c.Args[1], c.Args[0], result.SortedSet(), event.ClassZset)
	return protocol.Integer(int64(result.Len()))
}

func countMembers(c *command.Call, m memberRange) protocol.Value {
	if problem, ok := m.parseBounds(c.Args[2], c.Args[3]); !ok {
		return problem
	}
	z, reply, ok := theScored(c, command.Zero)
	if !ok {
		return reply
	}
	if problem, ok := c.Charge(command.SearchesIn(z, 2)); !ok {
		return problem
	}
	from, to := m.span(z)
	return protocol.Integer(int64(max(0, to-from)))
}

func removeScored(c *command.Call, m memberRange) protocol.Value {
	key := c.Args[1]
	if problem, ok := m.parseBounds(c.Args[2], c.Args[3]); !ok {
		return problem
	}
	z, reply, ok := theScored(c, command.Zero)
	if !ok {
		return reply
	}
	from, to := m.span(z)
	if to <= from {
		return command.Zero
	}
	if problem, ok := c.Charge(command.SearchesIn(z, 2) + scoredChanges(z, to-from, 0)); !ok {
		return problem
	}
	e, _ := command.Open(c, key, collection.NewSortedSet)
	e.V.RemoveRange(from, to)
	e.KeepAs(event.ClassZset, c.Args[0])
	return protocol.Integer(int64(to - from))
}
