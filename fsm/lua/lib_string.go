package lua

import (
	"slices"
	"strings"
)

var stringFunctions = []entry{
	{"byte", stringByte},
	{"char", stringChar},
	{"dump", stringDump},
	{"find", stringFind},
	{"format", stringFormat},
	{"gfind", stringGmatch},
	{"gmatch", stringGmatch},
	{"gsub", stringGsub},
	{"len", stringLen},
	{"lower", stringLower},
	{"match", stringMatch},
	{"rep", stringRep},
	{"reverse", stringReverse},
	{"sub", stringSub},
	{"upper", stringUpper},
}

// fromEnd converts a position that may count from the end to one that counts from the start. It returns 0 for a
// position before the start.
func fromEnd(pos int64, length int) int64 {
	if pos < 0 {
		pos += int64(length) + 1
	}
	return max(pos, 0)
}

// bounds returns the range of a string that the arguments 2 and 3 select, both inclusive. i and j are their defaults.
// If j is 0, the default of argument 3 is argument 2.
func (l *state) bounds(args []value, i, j int64, length int) (from, to int64, err *raised) {
	if from, err = l.optInt64(args, 2, i); err != nil {
		return 0, 0, err
	}
	from = fromEnd(from, length)
	if j == 0 {
		j = from
	}
	if to, err = l.optInt64(args, 3, j); err != nil {
		return 0, 0, err
	}
	return max(from, 1), min(fromEnd(to, length), int64(length)), nil
}

func stringLen(l *state, args []value) (int, *raised) {
	s, err := l.checkString(args, 1)
	if err != nil {
		return 0, err
	}
	return l.one(number(float64(len(s))))
}

func stringSub(l *state, args []value) (int, *raised) {
	s, err := l.checkString(args, 1)
	if err != nil {
		return 0, err
	}
	if _, err := l.checkInt64(args, 2); err != nil {
		return 0, err
	}
	from, to, err := l.bounds(args, 1, -1, len(s))
	if err != nil {
		return 0, err
	}
	if from > to {
		return l.one(emptyString)
	}
	return l.one(l.newString(s[from-1 : to]))
}

var emptyString = constant("")

func stringByte(l *state, args []value) (int, *raised) {
	s, err := l.checkString(args, 1)
	if err != nil {
		return 0, err
	}
	from, to, err := l.bounds(args, 1, 0, len(s))
	if err != nil {
		return 0, err
	}
	if from > to {
		return 0, nil
	}
	n := int(to - from + 1)
	if err := l.checkResults(n, len(args), "string slice too long"); err != nil {
		return 0, err
	}
	for _, c := range []byte(s[from-1 : to]) {
		l.push(number(float64(c)))
	}
	return n, nil
}

// checkResults grows the stack for n results. It fails if the results and the arguments are too many.
func (l *state) checkResults(n, args int, message string) *raised {
	if n+args > maxResults {
		return l.fail("stack overflow (" + message + ")")
	}
	l.charge(int64(n) / 4)
	l.needStack(n)
	return nil
}

func stringChar(l *state, args []value) (int, *raised) {
	l.allocString(len(args))
	b := make([]byte, len(args))
	for i := range args {
		c, err := l.checkInt(args, i+1)
		if err != nil {
			return 0, err
		}
		if c != int(byte(c)) {
			return 0, l.argError(i+1, "invalid value")
		}
		b[i] = byte(c)
	}
	return l.one(l.text(string(b)))
}

// stringDump fails, since programs have no binary form.
func stringDump(l *state, args []value) (int, *raised) {
	if err := l.checkFunction(args, 1); err != nil {
		return 0, err
	}
	return 0, l.fail("unable to dump given function")
}

func stringRep(l *state, args []value) (int, *raised) {
	s, err := l.checkString(args, 1)
	if err != nil {
		return 0, err
	}
	n, err := l.checkInt(args, 2)
	if err != nil {
		return 0, err
	}
	if n <= 0 || s == "" {
		return l.one(emptyString)
	}
	// Both factors are below 2^31, so the product does not overflow.
	l.alloc(stringBytes + int64(len(s))*int64(n))
	l.chargeBytes(len(s) * n)
	l.charge(int64(n) >> 6)
	return l.one(l.text(strings.Repeat(s, n)))
}

func stringReverse(l *state, args []value) (int, *raised) {
	s, err := l.checkString(args, 1)
	if err != nil {
		return 0, err
	}
	l.charge(int64(len(s)) >> 4)
	l.allocString(len(s))
	b := []byte(s)
	slices.Reverse(b)
	return l.one(l.text(string(b)))
}

func stringLower(l *state, args []value) (int, *raised) { return l.mapBytes(args, 'A', 'Z') }

func stringUpper(l *state, args []value) (int, *raised) { return l.mapBytes(args, 'a', 'z') }

// mapBytes changes the case of the letters in a range.
func (l *state) mapBytes(args []value, first, last byte) (int, *raised) {
	s, err := l.checkString(args, 1)
	if err != nil {
		return 0, err
	}
	l.charge(int64(len(s)) >> 4)
	l.allocString(len(s))
	b := []byte(s)
	for i, c := range b {
		if c >= first && c <= last {
			b[i] = c ^ 0x20
		}
	}
	return l.one(l.text(string(b)))
}
