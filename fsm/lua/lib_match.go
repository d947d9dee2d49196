package lua

import "strings"

func stringFind(l *state, args []value) (int, *raised) { return l.find(args, true) }

func stringMatch(l *state, args []value) (int, *raised) { return l.find(args, false) }

func (l *state) find(args []value, wantPositions bool) (int, *raised) {
	s, err := l.checkString(args, 1)
	if err != nil {
		return 0, err
	}
	p, err := l.checkString(args, 2)
	if err != nil {
		return 0, err
	}
	init, err := l.optInt64(args, 3, 1)
	if err != nil {
		return 0, err
	}
	from := int(min(max(fromEnd(init, len(s))-1, 0), int64(len(s))))
	l.chargeBytes(len(p))
	if wantPositions && (!arg(args, 4).falsy() || !hasSpecials(cString(p))) {
		return l.findPlain(s, p, from)
	}
	m, p0 := l.newMatcher(s, p)
	for at := from; at <= len(s); at++ {
		end, err := m.start(at, p0)
		if err != nil {
			return 0, err
		}
		if end >= 0 {
			m.chargeSpent()
			if !wantPositions {
				return m.pushCaptures(at, end)
			}
			l.push(number(float64(at + 1)))
			l.push(number(float64(end)))
			if m.level == 0 {
				return 2, nil
			}
			n, err := m.pushCaptures(at, end)
			return n + 2, err
		}
		if p0 == 1 { // anchored
			break
		}
	}
	m.chargeSpent()
	return l.one(nilValue)
}

// newMatcher returns a matcher, and the index of the pattern behind its anchor. As in C, a zero byte ends the pattern.
func (l *state) newMatcher(s, p string) (*matcher, int) {
	l.chargeBytes(len(p))
	m := &matcher{l: l, src: s, pat: cString(p)}
	if m.at(0) == '^' {
		return m, 1
	}
	return m, 0
}

func (l *state) findPlain(s, p string, from int) (int, *raised) {
	l.charge(int64(len(s)-from) >> 4)
	at := strings.Index(s[from:], p)
	if at < 0 {
		return l.one(nilValue)
	}
	at += from
	l.push(number(float64(at + 1)))
	l.push(number(float64(at + len(p))))
	return 2, nil
}

// stringGmatch returns an iterator, a new builtin that holds the position.
func stringGmatch(l *state, args []value) (int, *raised) {
	s, err := l.checkString(args, 1)
	if err != nil {
		return 0, err
	}
	p, err := l.checkString(args, 2)
	if err != nil {
		return 0, err
	}
	l.alloc(closureBytes + 640)
	m, _ := l.newMatcher(s, p) // gmatch has no anchors
	at := 0
	return l.one(value{o: &builtin{name: "gmatch", fn: func(l *state, _ []value) (int, *raised) {
		for ; at <= len(s); at++ {
			end, err := m.start(at, 0)
			if err != nil {
				return 0, err
			}
			if end >= 0 {
				m.chargeSpent()
				begin := at
				at = end
				if end == begin {
					at++
				}
				return m.pushCaptures(begin, end)
			}
		}
		m.chargeSpent()
		return 0, nil
	}}})
}

// substitution is the state of string.gsub.
type substitution struct {
	*matcher
	text     strings.Builder
	repl     value
	template string // repl, if isText is set
	isText   bool   // repl is a string or a number
}

func stringGsub(l *state, args []value) (int, *raised) {
	s, err := l.checkString(args, 1)
	if err != nil {
		return 0, err
	}
	p, err := l.checkString(args, 2)
	if err != nil {
		return 0, err
	}
	limit, err := l.optInt(args, 4, len(s)+1)
	if err != nil {
		return 0, err
	}
	g := substitution{repl: arg(args, 3)}
	g.template, g.isText = l.textOf(g.repl)
	if _, isTable := g.repl.table(); !g.isText && !isTable && !g.repl.isFunction() {
		return 0, l.argError(3, "string/function/table expected")
	}
	var p0 int
	g.matcher, p0 = l.newMatcher(s, p)
	n, at, copied := 0, 0, 0
	for n < limit {
		end, err := g.start(at, p0)
		if err != nil {
			return 0, err
		}
		if end >= 0 {
			n++
			g.append(s[copied:at])
			if err := g.replace(at, end); err != nil {
				return 0, err
			}
			copied = end
		}
		if end > at {
			at = end
		} else if at++; at > len(s) {
			break
		}
		if p0 == 1 {
			break
		}
	}
	g.chargeSpent()
	g.append(s[copied:])
	l.alloc(stringBytes)
	l.push(l.text(g.text.String()))
	l.push(number(float64(n)))
	return 2, nil
}

// append appends to the result. It charges twice the length, since the buffer grows by doubling.
func (g *substitution) append(text string) {
	g.l.alloc(2 * int64(len(text)))
	g.l.chargeBytes(len(text))
	g.text.WriteString(text)
}

// replace appends the replacement of the match from s to end.
func (g *substitution) replace(s, end int) *raised {
	l := g.l
	if g.isText {
		return g.expand(s, end)
	}
	var v value
	if g.repl.isFunction() {
		top := l.top
		l.needStack(spareSlots)
		l.push(g.repl)
		if _, err := g.pushCaptures(s, end); err != nil {
			return err
		}
		saved := g.level
		if err := l.call(top, 1); err != nil {
			return err
		}
		g.level = saved
		l.top = top
		v = l.stack[top]
	} else {
		key, err := g.capture(0, s, end)
		if err != nil {
			return err
		}
		if v, err = l.index(g.repl, key, noOperand); err != nil {
			return err
		}
	}
	text, ok := l.textOf(v)
	switch {
	case v.falsy():
		text = g.src[s:end]
	case !ok:
		return l.fail("invalid replacement value (a " + v.typeName() + ")")
	}
	g.append(text)
	return nil
}

// expand appends the template with the captures of the match from s to end.
func (g *substitution) expand(s, end int) *raised {
	t := g.template
	g.spend(1)
	for {
		percent := strings.IndexByte(t, '%')
		if percent < 0 {
			g.append(t)
			return nil
		}
		g.append(t[:percent])
		next := byte(0) // as in C, a zero byte follows a percent sign at the end
		if percent+1 < len(t) {
			next = t[percent+1]
		}
		switch {
		case next == '0':
			g.append(g.src[s:end])
		case isDecimalDigit(next):
			v, err := g.capture(int(next-'1'), s, end)
			if err != nil {
				return err
			}
			text, _ := g.l.textOf(v)
			g.append(text)
		default:
			g.append(string([]byte{next}))
		}
		g.spend(4)
		t = t[min(percent+2, len(t)):]
	}
}
