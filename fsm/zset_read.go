package fsm

import (
	"math"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/protocol"
)

// lookScored is [look] for a sorted set.
func (c *call) lookScored() (z *collection.SortedSet, there, ok bool) {
	return look[*collection.SortedSet](c, c.args[1])
}

// theScored is [lookOr] for a sorted set.
func (c *call) theScored(missing protocol.Value) (z *collection.SortedSet, reply protocol.Value, ok bool) {
	return lookOr[*collection.SortedSet](c, c.args[1], missing)
}

func zcardOp(c *call) protocol.Value {
	z, reply, ok := c.theScored(zero)
	if !ok {
		return reply
	}
	return protocol.Integer(int64(z.Len()))
}

func zscoreOp(c *call) protocol.Value {
	z, reply, ok := c.theScored(protocol.Null)
	if !ok {
		return reply
	}
	return scoreOf(z, c.args[2])
}

func scoreOf(z *collection.SortedSet, member string) protocol.Value {
	if score, ok := z.Score(member); ok {
		return protocol.Double(score)
	}
	return protocol.Null
}

func zmscoreOp(c *call) protocol.Value {
	z, there, ok := c.lookScored()
	if !ok {
		return errWrongType
	}
	members := c.args[2:]
	elems := make([]protocol.Value, len(members))
	if !there {
		return protocol.Array(elems...)
	}
	if problem, ok := c.charge(searchesIn(z, len(members))); !ok {
		return problem
	}
	for i, member := range members {
		elems[i] = scoreOf(z, member)
	}
	return protocol.Array(elems...)
}

func zrankOp(c *call) protocol.Value    { return c.rank(false) }
func zrevrankOp(c *call) protocol.Value { return c.rank(true) }

func (c *call) rank(reverse bool) protocol.Value {
	withScore := len(c.args) > 3
	missing := protocol.Null
	switch {
	case len(c.args) > 4:
		return errArity(c.args[0])
	case withScore && !isWord(c.args[3], "WITHSCORE"):
		return errSyntax
	case withScore:
		missing = protocol.NullArray
	}
	z, reply, ok := c.theScored(missing)
	if !ok {
		return reply
	}
	if problem, ok := c.charge(searchesIn(z, 2)); !ok {
		return problem
	}
	rank, ok := z.Rank(c.args[2])
	if !ok {
		return missing
	}
	if reverse {
		rank = z.Len() - 1 - rank
	}
	if !withScore {
		return protocol.Integer(int64(rank))
	}
	return protocol.Array(protocol.Integer(int64(rank)), scoreOf(z, c.args[2]))
}

func zrandmemberOp(c *call) protocol.Value {
	if len(c.args) > 2 {
		return c.randomMembers()
	}
	z, reply, ok := c.theScored(protocol.Null)
	if !ok {
		return reply
	}
	member, _ := z.At(c.draw(z.Len()))
	return protocol.Bulk(member)
}

// randomMembers is ZRANDMEMBER with a count.
func (c *call) randomMembers() protocol.Value {
	count, withScores, problem, ok := c.drawPairs("WITHSCORES")
	if !ok {
		return problem
	}
	z, there, ok := c.lookScored()
	switch {
	case !ok:
		return errWrongType
	case !there || count == 0:
		return protocol.Array()
	}
	if problem, ok := c.chargeDrawn(count, z, 2); !ok {
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
		for _, place := range c.drawn(count, z.Len()) {
			take(z.At(place))
		}
	}
	if withScores {
		return protocol.Pairs(elems...)
	}
	return protocol.Array(elems...)
}

func zscanOp(c *call) protocol.Value {
	return scanElements(c, func(z *collection.SortedSet, cursor uint64, s *elementScan) {
		s.takesPairs, s.count = true, min(s.count, maxScanned)
		from, ok := scanFrom(cursor)
		if !ok && !z.Small() {
			return
		}
		z.Scan(from, func(hash uint64, member string, score float64) bool {
			c.spend(formatWork)
			return s.visit(hash, member, scannedScore(z, score))
		})
	})
}

const (
	// formatWork is the work of writing a score.
	formatWork = 512
	// maxScanned is the number of members that a ZSCAN looks at, whatever COUNT says.
	maxScanned = 1 << 17
)

// scannedScore is a score as ZSCAN writes it: of a large sorted set with 17 digits, unlike all other
// commands.
func scannedScore(z *collection.SortedSet, score float64) string {
	if z.Small() || math.IsInf(score, 0) {
		return protocol.FormatDouble(score)
	}
	return protocol.FormatG(score, 17)
}
