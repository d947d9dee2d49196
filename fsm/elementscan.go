package fsm

import (
	"slices"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// scanned is a collection whose elements can be scanned.
type scanned interface {
	keyspace.Collection
	sized
}

// scanElements is HSCAN, SSCAN and ZSCAN. walk visits the elements from a cursor on.
func scanElements[T scanned](c *call, walk func(v T, cursor uint64, s *elementScan)) protocol.Value {
	cursor, ok := parseCursor(c.args[2])
	if !ok {
		return protocol.ErrInvalidCursor.Value()
	}
	v, reply, ok := lookOr[T](c, c.args[1], emptyScan())
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

// elementScan is a scan of elements under way, by the cursors of scan.go.
type elementScan struct {
	scanOptions
	c          *call
	small      bool
	seen       int64
	last       uint64
	reply      []protocol.Value
	next       string
	noValues   bool
	takesPairs bool
}

// startScan reads the words of a scan of elements.
func (c *call) startScan(v sized) (s elementScan, problem protocol.Value, ok bool) {
	s = elementScan{c: c, small: v.Small(), next: "0", takesPairs: c.args[0] == "hscan"}
	words := slices.Clone(c.args[3:])
	for i := 0; s.takesPairs && i < len(words); i += 2 {
		if isWord(words[i], "NOVALUES") {
			s.noValues = true
			words = slices.Delete(words, i, i+1)
			i -= 2
		}
	}
	s.scanOptions, problem, ok = parseScanOptions(words)
	if ok && s.typed {
		return s, errSyntax, false
	}
	if ok {
		s.matcher.start(c)
	}
	return s, problem, ok
}

// visit looks at an element, and reports whether the scan goes on. A small collection is returned whole,
// as in Redis.
func (s *elementScan) visit(order uint64, name, value string) bool {
	if !s.small && s.seen >= s.count && order>>cursorShift != s.last {
		s.next = formatUint(order >> cursorShift)
		return false
	}
	s.seen++
	s.c.spend(elementWork)
	s.last = order >> cursorShift
	if s.matcher.match(name) {
		s.reply = append(s.reply, protocol.Bulk(name))
		if s.takesPairs && !s.noValues {
			s.reply = append(s.reply, protocol.Bulk(value))
		}
	}
	return !s.matcher.tired() && s.seen < maxElementsWork/elementWork && s.c.fits(0)
}

// finish is the reply of the scan.
func (s *elementScan) finish() protocol.Value {
	s.matcher.charge(s.c)
	switch {
	case !s.c.fits(0):
		return errOverWork
	case s.matcher.tired():
		return errPattern
	case s.seen >= maxElementsWork/elementWork:
		return errTooMuchWork
	}
	return protocol.Array(protocol.Bulk(s.next), protocol.Array(s.reply...))
}

// emptyScan is the scan of a missing key.
func emptyScan() protocol.Value { return protocol.Array(protocol.Bulk("0"), protocol.Array()) }

// scanFrom is the first hash that a cursor stands for. ok is false for a cursor behind the end.
func scanFrom(cursor uint64) (from uint64, ok bool) { return cursor << cursorShift, cursor < 1<<53 }
