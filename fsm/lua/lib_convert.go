package lua

import "strings"

func baseToNumber(l *state, args []value) (int, *raised) {
	base, err := l.optInt(args, 2, 10)
	if err != nil {
		return 0, err
	}
	if base == 10 {
		if err := l.checkAny(args, 1); err != nil {
			return 0, err
		}
		if n, ok := l.toNumber(args[0]); ok {
			return l.one(number(n))
		}
		return l.one(nilValue)
	}
	s, err := l.checkString(args, 1)
	if err != nil {
		return 0, err
	}
	if base < 2 || base > 36 {
		return 0, l.argError(2, "base out of range")
	}
	l.charge(int64(len(s)) >> 2)
	if n, ok := parseUnsigned(s, base); ok {
		return l.one(number(n))
	}
	return l.one(nilValue)
}

// parseUnsigned parses an integer in a base as C's strtoul does. A minus sign negates modulo 2^64, and an integer that
// is too large becomes the largest one.
func parseUnsigned(s string, base int) (float64, bool) {
	s = trimSpace(cString(s))
	negative := strings.HasPrefix(s, "-")
	if negative || strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	if base == 16 && isHex(s) && len(s) > 2 {
		s = s[2:]
	}
	if s == "" {
		return 0, false
	}
	n, overflow := uint64(0), false
	for i := range len(s) {
		d := digitValue(s[i])
		if d >= base {
			return 0, false
		}
		next := n*uint64(base) + uint64(d)
		if n > (1<<64-1-uint64(d))/uint64(base) {
			overflow = true
		}
		n = next
	}
	switch {
	case overflow:
		n = 1<<64 - 1
	case negative:
		n = -n
	}
	return float64(n), true
}

func digitValue(c byte) int {
	switch {
	case isDecimalDigit(c):
		return int(c - '0')
	case isNameStart(c) && c != '_':
		return int(c|0x20-'a') + 10
	default:
		return 99
	}
}

var fieldToString = newConstant("__tostring")

func baseToString(l *state, args []value) (int, *raised) {
	if err := l.checkAny(args, 1); err != nil {
		return 0, err
	}
	v, err := l.toString(args[0])
	if err != nil {
		return 0, err
	}
	return l.one(v)
}

// toString is tostring(v).
func (l *state) toString(v value) (value, *raised) {
	if meta := l.metatable(v); meta != nil {
		if m := meta.getStr(l, fieldToString); !m.isNil() {
			return l.callMeta(m, 1, [3]value{v})
		}
	}
	switch x := v.o.(type) {
	case *str:
		return v, nil
	case numberTag:
		return l.stringValue(v), nil
	case trueTag:
		return textTrue, nil
	case falseTag:
		return textFalse, nil
	case nil:
		return textNil, nil
	case *userdata:
		return l.newString("userdata: " + x.name), nil
	default:
		return l.newString(v.typeName() + ": " + hex12(l.identity(v))), nil
	}
}

var textTrue, textFalse, textNil = constant("true"), constant("false"), constant("nil")
