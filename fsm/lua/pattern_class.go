package lua

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
