package lua

import (
	"strings"
)

// Patterns of Lua 5.1. The matcher backtracks, so its time can grow exponentially
// with the pattern; every step it takes is charged.

const (
	maxCaptures = 32
	// maxMatchDepth is how deep the matcher recurses: one level for each quantifier or
	// parenthesis of the pattern that is being matched. Lua 5.1 has no limit and overflows
	// its C stack.
	maxMatchDepth = 1000
	// unfinished and position are lengths of captures that have none.
	unfinished = -1
	position   = -2
)

// capture span of the source.
type span struct{ start, length int }

// matcher is a match in progress.
type matcher struct {
	l        *state
	src, pat string
	level    int // captures that have begun
	depth    int
	cost     int // steps not charged yet
	captures [maxCaptures]span
}

// patternError is a malformed pattern. The matcher recurses, so it is a
// panic, recovered by protect.
type patternError string

// spend counts work of n bytes.
func (m *matcher) spend(n int) {
	if m.cost += n; m.cost >= 64 {
		m.chargeSpent()
	}
}

// chargeSpent charges for what was spent.
func (m *matcher) chargeSpent() {
	m.l.charge(int64(m.cost) / 4)
	m.cost &= 3
}

// at is the byte of the pattern at p, 0 behind the end.
func (m *matcher) at(p int) byte {
	if p < len(m.pat) {
		return m.pat[p]
	}
	return 0
}

// sourceAt is the byte of the source at s, 0 behind the end.
func (m *matcher) sourceAt(s int) byte {
	if s < len(m.src) {
		return m.src[s]
	}
	return 0
}

// start matches the pattern at one place, and returns the end of the match or -1.
func (m *matcher) start(s, p int) (end int, err *raised) {
	defer func() {
		if r := recover(); r != nil {
			message, is := r.(patternError)
			if !is {
				panic(r)
			}
			err = m.l.fail(string(message))
		}
	}()
	m.level, m.depth = 0, 0
	end = m.match(s, p)
	m.spend(1)
	return end, nil
}

// match matches the pattern from p on with the source from s on, and returns the end of the match,
// or -1.
func (m *matcher) match(s, p int) int {
	if m.depth++; m.depth > maxMatchDepth {
		panic(patternError("pattern too complex"))
	}
	s = m.matchOn(s, p)
	m.depth--
	return s
}

func (m *matcher) matchOn(s, p int) int {
	for p < len(m.pat) {
		m.spend(1)
		switch c := m.pat[p]; {
		case c == '(':
			if m.at(p+1) == ')' {
				return m.openCapture(s, p+2, position)
			}
			return m.openCapture(s, p+1, unfinished)
		case c == ')':
			return m.closeCapture(s, p+1)
		case c == '$' && p+1 == len(m.pat):
			if s == len(m.src) {
				return s
			}
			return -1
		case c == '%' && m.isSpecial(p+1):
			if s, p = m.special(s, p+1); s < 0 {
				return -1
			}
			continue
		}
		end := m.classEnd(p)
		matches := s < len(m.src) && m.single(m.src[s], p, end)
		switch m.at(end) {
		case '?':
			if matches {
				if r := m.match(s+1, end+1); r >= 0 {
					return r
				}
			}
			p = end + 1
		case '*':
			return m.longest(s, p, end)
		case '+':
			if !matches {
				return -1
			}
			return m.longest(s+1, p, end)
		case '-':
			return m.shortest(s, p, end)
		default:
			if !matches {
				return -1
			}
			s++
			p = end
		}
	}
	return s
}

func (m *matcher) isSpecial(p int) bool {
	c := m.at(p)
	return c == 'b' || c == 'f' || isDecimalDigit(c)
}

// special matches %b, %f and back references, and returns where it goes on.
func (m *matcher) special(s, p int) (int, int) {
	switch c := m.at(p); c {
	case 'b':
		return m.balanced(s, p+1), p + 3
	case 'f':
		p++
		if m.at(p) != '[' {
			panic(patternError("missing '[' after '%f' in pattern"))
		}
		end := m.classEnd(p)
		before := byte(0)
		if s > 0 {
			before = m.src[s-1]
		}
		if m.inSet(before, p, end-1) || !m.inSet(m.sourceAt(s), p, end-1) {
			return -1, 0
		}
		return s, end
	default:
		return m.backReference(s, c), p + 1
	}
}

// balanced matches %bxy at s; p is at x.
func (m *matcher) balanced(s, p int) int {
	if p+1 >= len(m.pat) {
		panic(patternError("unbalanced pattern"))
	}
	begin, end := m.pat[p], m.pat[p+1]
	if m.sourceAt(s) != begin || s >= len(m.src) {
		return -1
	}
	open := 1
	for at := s + 1; at < len(m.src); at++ {
		m.spend(1)
		switch m.src[at] {
		case end:
			if open--; open == 0 {
				return at + 1
			}
		case begin:
			open++
		}
	}
	return -1
}

// longest tries the class as often as it matches, then less often.
func (m *matcher) longest(s, p, end int) int {
	n := 0
	for s+n < len(m.src) && m.single(m.src[s+n], p, end) {
		n++
	}
	m.spend(n)
	for ; n >= 0; n-- {
		if r := m.match(s+n, end+1); r >= 0 {
			return r
		}
	}
	return -1
}

// shortest tries the class as rarely as possible, then more often.
func (m *matcher) shortest(s, p, end int) int {
	for {
		m.spend(1)
		if r := m.match(s, end+1); r >= 0 {
			return r
		}
		if s >= len(m.src) || !m.single(m.src[s], p, end) {
			return -1
		}
		s++
	}
}

func (m *matcher) openCapture(s, p, what int) int {
	if m.level >= maxCaptures {
		panic(patternError("too many captures"))
	}
	m.captures[m.level] = span{s, what}
	m.level++
	r := m.match(s, p)
	if r < 0 {
		m.level--
	}
	return r
}

func (m *matcher) closeCapture(s, p int) int {
	n := m.level - 1
	for n >= 0 && m.captures[n].length != unfinished {
		n--
	}
	if n < 0 {
		panic(patternError("invalid pattern capture"))
	}
	m.captures[n].length = s - m.captures[n].start
	r := m.match(s, p)
	if r < 0 {
		m.captures[n].length = unfinished
	}
	return r
}

// backReference matches what a capture matched.
func (m *matcher) backReference(s int, digit byte) int {
	n := int(digit) - '1'
	if n < 0 || n >= m.level || m.captures[n].length == unfinished {
		panic(patternError("invalid capture index"))
	}
	c := m.captures[n]
	if c.length < 0 || len(m.src)-s < c.length { // a position has no text
		return -1
	}
	m.spend(c.length / 16)
	if m.src[s:s+c.length] != m.src[c.start:c.start+c.length] {
		return -1
	}
	return s + c.length
}

// pushCaptures pushes the captures of a match; the whole when there are none.
func (m *matcher) pushCaptures(s, end int) (int, *raised) {
	n := max(m.level, 1)
	m.l.needStack(n + spareSlots)
	for i := range n {
		v, err := m.capture(i, s, end)
		if err != nil {
			return 0, err
		}
		m.l.push(v)
	}
	return n, nil
}

// capture returns the capture i of the match from s to end.
func (m *matcher) capture(i, s, end int) (value, *raised) {
	if i >= m.level {
		if i != 0 {
			return nilValue, m.l.fail("invalid capture index")
		}
		return m.l.newString(m.src[s:end]), nil
	}
	c := m.captures[i]
	switch c.length {
	case unfinished:
		return nilValue, m.l.fail("unfinished capture")
	case position:
		return number(float64(c.start + 1)), nil
	default:
		return m.l.newString(m.src[c.start : c.start+c.length]), nil
	}
}

// hasSpecials reports whether a pattern is more than its text.
func hasSpecials(p string) bool { return strings.ContainsAny(p, "^$*+?.([%-") }

// classEnd returns where the single-character class at p ends.
func (m *matcher) classEnd(p int) int {
	c := m.at(p)
	p++
	switch c {
	case '%':
		if p >= len(m.pat) {
			panic(patternError("malformed pattern (ends with '%')"))
		}
		return p + 1
	case '[':
		return m.setEnd(p)
	default:
		return p
	}
}

func (m *matcher) setEnd(p int) int {
	begin := p
	if m.at(p) == '^' {
		p++
	}
	for first := true; first || m.at(p) != ']'; first = false {
		if p >= len(m.pat) {
			panic(patternError("malformed pattern (missing ']')"))
		}
		p++
		if m.pat[p-1] == '%' && p < len(m.pat) {
			p++
		}
	}
	m.spend(p - begin)
	return p + 1
}

// single reports whether c is in the class from p to end.
func (m *matcher) single(c byte, p, end int) bool {
	switch m.pat[p] {
	case '.':
		return true
	case '%':
		return inClass(c, m.pat[p+1])
	case '[':
		return m.inSet(c, p, end-1)
	default:
		return m.pat[p] == c
	}
}

// inSet reports whether c is in the set between the brackets at p and end.
func (m *matcher) inSet(c byte, p, end int) bool {
	m.spend(end - p)
	found := true
	if m.at(p+1) == '^' {
		found = false
		p++
	}
	for p++; p < end; p++ {
		switch {
		case m.pat[p] == '%':
			p++
			if inClass(c, m.at(p)) {
				return found
			}
		case m.at(p+1) == '-' && p+2 < end:
			p += 2
			if m.pat[p-2] <= c && c <= m.pat[p] {
				return found
			}
		case m.pat[p] == c:
			return found
		}
	}
	return !found
}

// inClass reports whether c is in the class that a letter names; any other
// byte names itself.
func inClass(c, class byte) bool {
	var in bool
	switch class | 0x20 {
	case 'a':
		in = isLetter(c)
	case 'c':
		in = c < 32 || c == 127
	case 'd':
		in = isDecimalDigit(c)
	case 'l':
		in = c >= 'a' && c <= 'z'
	case 'p':
		in = isPunct(c)
	case 's':
		in = isSpace(c)
	case 'u':
		in = c >= 'A' && c <= 'Z'
	case 'w':
		in = isLetter(c) || isDecimalDigit(c)
	case 'x':
		in = isHexDigit(c)
	case 'z':
		in = c == 0
	default:
		return c == class
	}
	if !isLetter(class) {
		return c == class
	}
	if class < 'a' {
		return !in
	}
	return in
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

func isPunct(c byte) bool { return c > ' ' && c < 127 && !isLetter(c) && !isDecimalDigit(c) }
