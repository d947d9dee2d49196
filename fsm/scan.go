package fsm

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// A SCAN cursor is a position in the order of key hashes: the scan goes on with the keys at that
// position or behind it. Nothing is kept between two calls, so a cursor is good on every node and
// after every failover, and a key that is there during the whole scan is returned exactly once.
//
// A position is the upper 53 bits of the hash, because clients parse cursors as signed 64 bit integers
// and as JavaScript numbers. Keys that share a position are returned in one reply, even if the reply
// then holds more than COUNT.
const cursorShift = 64 - 53

func position(it *keyspace.Item) uint64 { return it.Hash >> cursorShift }

// scanOptions are MATCH, COUNT and TYPE.
type scanOptions struct {
	matcher  matcher
	count    int64
	typeName string
	typed    bool
}

func scanOp(c *call) protocol.Value {
	cursor, ok := parseCursor(c.args[1])
	if !ok {
		return protocol.ErrInvalidCursor.Value()
	}
	o, problem, ok := parseScanOptions(c.args[2:])
	if !ok {
		return problem
	}
	c.meetAll()
	keys, next := c.scan(cursor, &o)
	if !c.fits(0) {
		return errOverWork
	}
	if o.matcher.tired() {
		return errPattern
	}
	return protocol.Array(protocol.Bulk(next), protocol.Array(keys...))
}

// scan returns the matching keys among the next o.count, and the next cursor: "0" at the end.
func (c *call) scan(cursor uint64, o *scanOptions) (keys []protocol.Value, next string) {
	next = "0"
	if cursor >= 1<<53 {
		return nil, next
	}
	var seen int64
	var last uint64
	o.matcher.start(c)
	defer o.matcher.charge(c)
	c.ascend(cursor<<cursorShift, func(it *keyspace.Item) bool {
		if seen >= o.count && position(it) != last {
			next = formatUint(position(it))
			return false
		}
		seen++
		c.spendScan()
		last = position(it)
		if o.wants(it) {
			keys = append(keys, protocol.Bulk(it.Key()))
		}
		return !o.matcher.tired() && c.fits(0)
	})
	return keys, next
}

func (o *scanOptions) wants(it *keyspace.Item) bool {
	if o.typed && !isKind(o.typeName, it.Kind()) {
		return false
	}
	return o.matcher.match(it.Key())
}

func parseScanOptions(words []string) (o scanOptions, problem protocol.Value, ok bool) {
	o.count, o.matcher.pattern = 10, "*"
	for len(words) > 0 {
		if len(words) < 2 {
			return o, errSyntax, false
		}
		value := words[1]
		switch {
		case isWord(words[0], "COUNT"):
			if o.count, ok = protocol.ParseInt(value); !ok {
				return o, errNotInteger, false
			}
			if o.count < 1 {
				return o, errSyntax, false
			}
		case isWord(words[0], "MATCH"):
			o.matcher.pattern = value
		case isWord(words[0], "TYPE"):
			o.typeName, o.typed = value, true
		default:
			return o, errSyntax, false
		}
		words = words[2:]
	}
	return o, problem, true
}

// parseCursor reads an unsigned number as strtoul does: a minus sign wraps around.
func parseCursor(word string) (cursor uint64, ok bool) {
	if sign, digits := word[:min(1, len(word))], word[min(1, len(word)):]; sign == "-" || sign == "+" {
		if digits == "" || digits[0] == '-' || digits[0] == '+' {
			return 0, false
		}
		cursor, ok = parseCursor(digits)
		if sign == "-" {
			cursor = -cursor
		}
		return cursor, ok
	}
	if word == "" {
		return 0, false
	}
	for i := range len(word) {
		d := uint64(word[i] - '0')
		if d > 9 {
			return 0, false
		}
		if cursor > (1<<64-1-d)/10 {
			return 0, false
		}
		cursor = cursor*10 + d
	}
	return cursor, true
}

func keysOp(c *call) protocol.Value {
	c.meetAll()
	var keys []protocol.Value
	m := matcher{pattern: c.args[1]}
	m.start(c)
	c.ascend(0, func(it *keyspace.Item) bool {
		c.spendScan()
		if m.match(it.Key()) {
			keys = append(keys, protocol.Bulk(it.Key()))
		}
		return !m.tired() && c.fits(0)
	})
	m.charge(c)
	if !c.fits(0) {
		return errOverWork
	}
	if m.tired() {
		return errPattern
	}
	return protocol.Array(keys...)
}

// matcher matches the keys of a database with a pattern, in a bounded number of steps: a long pattern
// over long keys would hold up all later requests.
type matcher struct {
	pattern string
	steps   int64 // left
	granted int64
}

// A step takes a few nanoseconds.
const (
	minMatchSteps    = 1 << 27
	matchStepsPerKey = 32
)

var errPattern = protocol.Err("pattern takes too long to match")

func (m *matcher) start(c *call) {
	m.granted = minMatchSteps + matchStepsPerKey*int64(c.st.databases[c.db].Len(c.nowMillis))
	m.granted = min(m.granted, max(0, (c.ceiling-c.work)/stepWork))
	m.steps = m.granted
}

// charge charges for the steps that were used.
func (m *matcher) charge(c *call) { c.spend((m.granted - m.steps) * stepWork) }

// tired reports whether the steps did not suffice.
func (m *matcher) tired() bool { return m.steps < 0 }

func (m *matcher) match(key string) bool {
	return m.pattern == "*" || protocol.MatchSteps(m.pattern, key, false, &m.steps)
}

// randomkeyOp returns the first key at or after a position drawn by [call.random]. The ended keys that
// wait to be swept play no part.
func randomkeyOp(c *call) protocol.Value {
	c.meetAll()
	reply := protocol.Null
	take := func(it *keyspace.Item) bool {
		reply = protocol.Bulk(it.Key())
		return false
	}
	c.ascend(c.random(), take)
	if reply.IsNull() && c.fits(0) {
		c.ascend(0, take)
	}
	if !c.fits(0) {
		return errOverWork
	}
	return reply
}

// random is the next number of a sequence that is the same on all nodes in an entry. A read draws
// from a separate seed.
func (c *call) random() uint64 {
	c.draws++
	return hashNumbers(uint64(c.nowMillis), c.st.versions, c.seed, c.draws)
}
