package lua

import (
	"strings"
)

const (
	maxCaptures = 32
	// maxMatchDepth limits the recursion of the matcher. It recurses once for each quantifier and parenthesis. Lua 5.1
	// has no limit, and overflows its C stack.
	maxMatchDepth = 1000
	// unfinished is the length of a capture that has not ended, and position that of a position capture.
	unfinished = -1
	position   = -2
)

// span is the part of the source that a capture has matched.
type span struct{ start, length int }

// matcher is the state of a match with a pattern of Lua 5.1. It backtracks, so its time may be exponential in the
// length of the pattern. All its steps are charged.
type matcher struct {
	l        *state
	src, pat string
	level    int // the number of captures that have begun
	depth    int
	cost     int // the cost that is not charged yet, in quarters of a step
	captures [maxCaptures]span
}

// patternError is the error of a malformed pattern. The matcher recurses, so the error is a panic, which start
// recovers.
type patternError string

// spend adds to the cost. n is about the number of compared bytes.
func (m *matcher) spend(n int) {
	if m.cost += n; m.cost >= 64 {
		m.chargeSpent()
	}
}

// chargeSpent charges the cost so far.
func (m *matcher) chargeSpent() {
	m.l.charge(int64(m.cost) / 4)
	m.cost &= 3
}

// at returns the byte of the pattern at p, or 0 behind the end.
func (m *matcher) at(p int) byte {
	if p < len(m.pat) {
		return m.pat[p]
	}
	return 0
}

// sourceAt returns the byte of the source at s, or 0 behind the end.
func (m *matcher) sourceAt(s int) byte {
	if s < len(m.src) {
		return m.src[s]
	}
	return 0
}

// start matches the pattern from p on with the source from s on, and returns the end of the match, or -1.
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

// match is start for a part of the pattern.
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

// special matches %b, %f or a back reference. It returns the positions behind it in the source, or -1, and in the
// pattern.
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

// balanced matches %bxy at s. p is the index of x.
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

// longest matches the class from p to end as often as possible, and the rest of the pattern. If the rest does not
// match, it backtracks.
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

// shortest matches the class from p to end as rarely as possible, and the rest of the pattern.
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

// openCapture begins a capture, whose length is unfinished or position, and matches the rest of the pattern.
func (m *matcher) openCapture(s, p, length int) int {
	if m.level >= maxCaptures {
		panic(patternError("too many captures"))
	}
	m.captures[m.level] = span{s, length}
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

// backReference matches the text of a capture.
func (m *matcher) backReference(s int, digit byte) int {
	n := int(digit) - '1'
	if n < 0 || n >= m.level || m.captures[n].length == unfinished {
		panic(patternError("invalid capture index"))
	}
	c := m.captures[n]
	if c.length < 0 || len(m.src)-s < c.length { // a position capture has no text
		return -1
	}
	m.spend(c.length / 16)
	if m.src[s:s+c.length] != m.src[c.start:c.start+c.length] {
		return -1
	}
	return s + c.length
}

// pushCaptures pushes the captures of the match from s to end, or the whole match if there are none.
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

// capture returns the capture i of the match from s to end. The capture 0 of a pattern without captures is the match.
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

// hasSpecials reports whether a pattern has special characters.
func hasSpecials(p string) bool { return strings.ContainsAny(p, "^$*+?.([%-") }

// classEnd returns the end of the single-character class at p.
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

// inClass reports whether c is in the class of a letter, such as 'a' for letters. Any other byte is a class of itself.
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
