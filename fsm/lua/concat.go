package lua

import "strings"

// concat joins the values of the slots from first to last, from right to left as the operator binds.
// Neighbours that are strings or numbers are joined at once.
func (l *state) concat(first, last int) (value, *raised) {
	for last > first {
		a, b := l.stack[last-1], l.stack[last]
		if !joinable(a) || !joinable(b) {
			v, err := l.concatMeta(a, b, last)
			if err != nil {
				return nilValue, err
			}
			last--
			l.stack[last] = v
			continue
		}
		from := last - 1
		for from > first && joinable(l.stack[from-1]) {
			from--
		}
		l.stack[from] = l.join(l.stack[from : last+1])
		last = from
	}
	return l.stack[first], nil
}

func joinable(v value) bool {
	switch v.o.(type) {
	case *str, numberTag:
		return true
	default:
		return false
	}
}

// join makes one string of strings and numbers.
func (l *state) join(parts []value) value {
	n := 0
	var digits [32]byte
	for _, v := range parts {
		if s, is := v.str(); is {
			n += len(s.s)
		} else {
			n += len(appendNumber(digits[:0], v.n))
		}
	}
	l.allocString(n)
	l.charge(int64(len(parts)) / 8)
	var text strings.Builder
	text.Grow(n)
	for _, v := range parts {
		if s, is := v.str(); is {
			text.WriteString(s.s)
		} else {
			text.Write(appendNumber(digits[:0], v.n))
		}
	}
	return l.text(text.String())
}

// concatMeta is a .. b by a metamethod. b stands in the slot at, and a in the slot before.
func (l *state) concatMeta(a, b value, at int) (value, *raised) {
	m := l.metamethod(a, eventConcat)
	if m.isNil() {
		m = l.metamethod(b, eventConcat)
	}
	if m.isNil() {
		if joinable(a) {
			return nilValue, l.typeError(at, b, "concatenate")
		}
		return nilValue, l.typeError(at-1, a, "concatenate")
	}
	return l.callMeta(m, 2, [3]value{a, b})
}
