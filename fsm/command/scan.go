package command

import (
	"slices"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// A SCAN cursor is a position in the order of key hashes: the scan continues with the keys at or after it. No state is
// kept between two calls, so a cursor is valid on every node and after a failover. A key that exists during the whole
// scan is returned exactly once.
//
// A position is the upper 53 bits of the hash, since clients parse cursors as signed 64-bit integers and as JavaScript
// numbers. All keys at a position are returned in one reply, even if they exceed COUNT.
const CursorShift = 64 - 53

// ScanOptions are MATCH, COUNT and TYPE.
type ScanOptions struct {
	Matcher  Matcher
	Count    int64
	typeName string
	typed    bool
}

func ParseScanOptions(words []string) (o ScanOptions, problem protocol.Value, ok bool) {
	o.Count, o.Matcher.Pattern = 10, "*"
	for len(words) > 0 {
		if len(words) < 2 {
			return o, ErrSyntax, false
		}
		value := words[1]
		switch {
		case IsWord(words[0], "COUNT"):
			if o.Count, ok = protocol.ParseInt(value); !ok {
				return o, ErrNotInteger, false
			}
			if o.Count < 1 {
				return o, ErrSyntax, false
			}
		case IsWord(words[0], "MATCH"):
			o.Matcher.Pattern = value
		case IsWord(words[0], "TYPE"):
			o.typeName, o.typed = value, true
		default:
			return o, ErrSyntax, false
		}
		words = words[2:]
	}
	return o, problem, true
}

func (o *ScanOptions) Wants(it *keyspace.Item) bool {
	if o.typed && !isKind(o.typeName, it.Kind()) {
		return false
	}
	return o.Matcher.Match(it.Key())
}

// ParseCursor parses an unsigned number as strtoul of C does: a minus sign wraps around.
func ParseCursor(word string) (cursor uint64, ok bool) {
	if sign, digits := word[:min(1, len(word))], word[min(1, len(word)):]; sign == "-" || sign == "+" {
		if digits == "" || digits[0] == '-' || digits[0] == '+' {
			return 0, false
		}
		cursor, ok = ParseCursor(digits)
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

// Matcher matches keys with a pattern in a bounded number of steps, since a long pattern over long keys would delay all
// later requests.
type Matcher struct {
	Pattern string
	steps   int64 // the steps that are left
	granted int64
}

func (m *Matcher) Start(c *Call) {
	m.granted = minMatchSteps + matchStepsPerKey*int64(c.Keys.Databases[c.DB].Len(c.NowMillis))
	m.granted = min(m.granted, max(0, (c.Ceiling-c.Work)/StepWork))
	m.steps = m.granted
}

// Charge charges for the used steps.
func (m *Matcher) Charge(c *Call) { c.Spend((m.granted - m.steps) * StepWork) }

// IsExhausted reports whether the steps did not suffice.
func (m *Matcher) IsExhausted() bool { return m.steps < 0 }

func (m *Matcher) Match(key string) bool {
	return m.Pattern == "*" || protocol.MatchSteps(m.Pattern, key, false, &m.steps)
}

var ErrPattern = protocol.Err("pattern takes too long to match")

// The steps for a pattern. A step takes a few nanoseconds.
const (
	minMatchSteps    = 1 << 27
	matchStepsPerKey = 32
)

// scanned is a collection that can be scanned.
type scanned interface {
	keyspace.Collection
	sized
}

// ScanElements runs HSCAN, SSCAN and ZSCAN. walk calls Visit with the elements from a cursor on.
func ScanElements[T scanned](c *Call, walk func(v T, cursor uint64, s *ElementScan)) protocol.Value {
	cursor, ok := ParseCursor(c.Args[2])
	if !ok {
		return protocol.ErrInvalidCursor.Value()
	}
	v, reply, ok := ReadOr[T](c, c.Args[1], emptyScan())
	if !ok {
		return reply
	}
	s, problem, ok := c.startScan(v)
	if !ok {
		return problem
	}
	walk(v, cursor, &s)
	return s.finish()
}

// ElementScan is a running scan of the elements of a collection. CursorShift explains its cursors.
type ElementScan struct {
	ScanOptions
	c          *Call
	small      bool
	seen       int64
	last       uint64
	reply      []protocol.Value
	next       string
	noValues   bool
	TakesPairs bool
}

// startScan parses the options of a scan of elements.
func (c *Call) startScan(v sized) (s ElementScan, problem protocol.Value, ok bool) {
	s = ElementScan{c: c, small: v.Small(), next: "0", TakesPairs: c.Args[0] == "hscan"}
	words := slices.Clone(c.Args[3:])
	for i := 0; s.TakesPairs && i < len(words); i += 2 {
		if IsWord(words[i], "NOVALUES") {
			s.noValues = true
			words = slices.Delete(words, i, i+1)
			i -= 2
		}
	}
	s.ScanOptions, problem, ok = ParseScanOptions(words)
	if ok && s.typed {
		return s, ErrSyntax, false
	}
	if ok {
		s.Matcher.Start(c)
	}
	return s, problem, ok
}

// Visit adds an element to the reply if it matches, and reports whether the scan continues. As in Redis, a small
// collection is returned as a whole.
func (s *ElementScan) Visit(order uint64, name, value string) bool {
	if !s.small && s.seen >= s.Count && order>>CursorShift != s.last {
		s.next = FormatUint(order >> CursorShift)
		return false
	}
	s.seen++
	s.c.Spend(ElementWork)
	s.last = order >> CursorShift
	if s.Matcher.Match(name) {
		s.reply = append(s.reply, protocol.Bulk(name))
		if s.TakesPairs && !s.noValues {
			s.reply = append(s.reply, protocol.Bulk(value))
		}
	}
	return !s.Matcher.IsExhausted() && s.seen < MaxElementsWork/ElementWork && s.c.Fits(0)
}

// finish returns the reply of the scan.
func (s *ElementScan) finish() protocol.Value {
	s.Matcher.Charge(s.c)
	switch {
	case !s.c.Fits(0):
		return ErrOverWork
	case s.Matcher.IsExhausted():
		return ErrPattern
	case s.seen >= MaxElementsWork/ElementWork:
		return ErrTooMuchWork
	}
	return protocol.Array(protocol.Bulk(s.next), protocol.Array(s.reply...))
}

// emptyScan returns the reply of a scan of a missing key.
func emptyScan() protocol.Value { return protocol.Array(protocol.Bulk("0"), protocol.Array()) }

// ScanFrom returns the first hash at a cursor. ok is false for a cursor beyond the last position.
func ScanFrom(cursor uint64) (from uint64, ok bool) { return cursor << CursorShift, cursor < 1<<53 }
