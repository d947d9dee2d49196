package lua

import (
	"math"
	"strconv"
	"strings"
)

// directive is a conversion of string.format.
type directive struct {
	minus, plus, space, alternate, zero bool

	width     int
	precision int // -1 if the directive has none
	verb      byte
}

// stringFormat is string.format, which is C's sprintf for the directives that Lua 5.1 accepts.
func stringFormat(l *state, args []value) (int, *raised) {
	format, err := l.checkString(args, 1)
	if err != nil {
		return 0, err
	}
	var out strings.Builder
	for n := 1; format != ""; {
		percent := strings.IndexByte(format, '%')
		if percent < 0 {
			percent = len(format)
		}
		l.formatted(&out, format[:percent])
		if format = format[percent:]; format == "" {
			break
		}
		if strings.HasPrefix(format, "%%") {
			l.formatted(&out, "%")
			format = format[2:]
			continue
		}
		if n++; n > len(args) {
			return 0, l.argError(n, "no value")
		}
		d, rest, err := l.parseDirective(format[1:])
		if err != nil {
			return 0, err
		}
		format = rest
		text, err := l.convert(d, args, n)
		if err != nil {
			return 0, err
		}
		l.formatted(&out, text)
	}
	l.alloc(stringBytes)
	return l.one(l.text(out.String()))
}

// formatted appends text to out. It charges twice the length, since the buffer grows by doubling.
func (l *state) formatted(out *strings.Builder, text string) {
	l.alloc(2 * int64(len(text)))
	l.charge(int64(len(text))>>6 + 1)
	out.WriteString(text)
}

// parseDirective parses a directive. s begins behind the percent sign.
func (l *state) parseDirective(s string) (d directive, rest string, err *raised) {
	i := 0
	for ; i < len(s) && strings.IndexByte("-+ #0", s[i]) >= 0; i++ {
		switch s[i] {
		case '-':
			d.minus = true
		case '+':
			d.plus = true
		case ' ':
			d.space = true
		case '#':
			d.alternate = true
		case '0':
			d.zero = true
		}
	}
	if i > 5 {
		return d, "", l.fail("invalid format (repeated flags)")
	}
	d.width, i = twoDigits(s, i)
	d.precision = -1
	if i < len(s) && s[i] == '.' {
		d.precision, i = twoDigits(s, i+1)
	}
	if i < len(s) && isDecimalDigit(s[i]) {
		return d, "", l.fail("invalid format (width or precision too long)")
	}
	if i < len(s) {
		d.verb = s[i]
		i++
	}
	return d, s[i:], nil
}

func twoDigits(s string, i int) (n, next int) {
	for end := min(i+2, len(s)); i < end && isDecimalDigit(s[i]); i++ {
		n = n*10 + int(s[i]-'0')
	}
	return n, i
}

// convert formats an argument by a directive. As in C, a zero byte ends the text.
func (l *state) convert(d directive, args []value, n int) (string, *raised) {
	switch d.verb {
	case 'c':
		x, err := l.checkNumber(args, n)
		return cString(d.pad(string([]byte{byte(toInt32(x))}))), err
	case 'd', 'i':
		x, err := l.checkNumber(args, n)
		return d.signed(toInt64(x)), err
	case 'o', 'u', 'x', 'X':
		x, err := l.checkNumber(args, n)
		return d.unsigned(toUint64(x)), err
	case 'e', 'E', 'f', 'g', 'G':
		x, err := l.checkNumber(args, n)
		return d.float(x), err
	case 'q':
		s, err := l.checkString(args, n)
		if err != nil {
			return "", err
		}
		return l.quote(s), nil
	case 's':
		s, err := l.checkString(args, n)
		if err != nil || d.precision < 0 && len(s) >= 100 {
			return s, err
		}
		if d.precision >= 0 {
			s = s[:min(d.precision, len(s))]
		}
		return d.pad(cString(s)), nil
	default:
		verb := string([]byte{d.verb})
		if d.verb == 0 {
			verb = ""
		}
		return "", l.fail("invalid option '%" + verb + "' to 'format'")
	}
}

// pad pads text with blanks to the width.
func (d directive) pad(text string) string {
	missing := d.width - len(text)
	switch {
	case missing <= 0:
		return text
	case d.minus:
		return text + strings.Repeat(" ", missing)
	default:
		return strings.Repeat(" ", missing) + text
	}
}

// padNumber pads a number to the width: with zeros behind the sign if zeros is set, and otherwise with blanks.
func (d directive) padNumber(sign, digits string, zeros bool) string {
	if missing := d.width - len(sign) - len(digits); zeros && missing > 0 && !d.minus {
		return sign + strings.Repeat("0", missing) + digits
	}
	return d.pad(sign + digits)
}

func (d directive) sign(negative bool) string {
	switch {
	case negative:
		return "-"
	case d.plus:
		return "+"
	case d.space:
		return " "
	default:
		return ""
	}
}

// minDigits pads the digits of an integer with zeros to the precision. As in C, 0 has no digits in the precision 0.
func (d directive) minDigits(digits string) string {
	if d.precision == 0 && digits == "0" {
		return ""
	}
	if missing := d.precision - len(digits); missing > 0 {
		return strings.Repeat("0", missing) + digits
	}
	return digits
}

func (d directive) signed(n int64) string {
	digits := strconv.FormatInt(n, 10)
	digits = strings.TrimPrefix(digits, "-")
	return d.padNumber(d.sign(n < 0), d.minDigits(digits), d.zero && d.precision < 0)
}

func (d directive) unsigned(n uint64) string {
	base, prefix := 10, ""
	switch d.verb {
	case 'o':
		base = 8
	case 'x', 'X':
		base = 16
	}
	digits := d.minDigits(strconv.FormatUint(n, base))
	if d.alternate {
		switch {
		case base == 8 && !strings.HasPrefix(digits, "0"):
			digits = "0" + digits
		case base == 16 && n != 0:
			prefix = "0x"
		}
	}
	text := d.padNumber(prefix, digits, d.zero && d.precision < 0)
	if d.verb == 'X' {
		return strings.ToUpper(text)
	}
	return text
}

func (d directive) float(x float64) string {
	sign := d.sign(math.Signbit(x))
	if special, is := appendNonFinite(nil, math.Abs(x)); is {
		text := d.pad(sign + strings.TrimPrefix(string(special), "-"))
		if d.verb < 'a' {
			return strings.ToUpper(text)
		}
		return text
	}
	precision := d.precision
	if precision < 0 {
		precision = 6
	}
	digits := ""
	switch verb := d.verb | 0x20; verb {
	case 'g':
		digits = d.general(math.Abs(x), max(precision, 1))
	default:
		digits = strconv.FormatFloat(math.Abs(x), verb, precision, 64)
		if d.alternate && precision == 0 {
			mantissa, exponent, _ := strings.Cut(digits, "e")
			digits = mantissa + "."
			if exponent != "" {
				digits += "e" + exponent
			}
		}
	}
	text := d.padNumber(sign, digits, d.zero)
	if d.verb < 'a' {
		return strings.ToUpper(text)
	}
	return text
}

// general formats a non-negative number as %g does. The flag # keeps trailing zeros.
func (d directive) general(x float64, precision int) string {
	if !d.alternate {
		return strconv.FormatFloat(x, 'g', precision, 64)
	}
	text := strconv.FormatFloat(x, 'e', precision-1, 64)
	mantissa, exponentText, _ := strings.Cut(text, "e")
	exponent, _ := strconv.Atoi(exponentText)
	if exponent < -4 || exponent >= precision {
		if !strings.Contains(mantissa, ".") {
			mantissa += "."
		}
		return mantissa + "e" + exponentText
	}
	text = strconv.FormatFloat(x, 'f', precision-1-exponent, 64)
	if !strings.Contains(text, ".") {
		text += "."
	}
	return text
}

// quote returns a string as a literal of Lua.
func (l *state) quote(s string) string {
	l.alloc(2 * int64(len(s)))
	l.charge(int64(len(s)) >> 4)
	// a zero byte takes four bytes
	l.charge(int64(len(s)) >> 6)
	l.alloc(6 * int64(strings.Count(s, "\x00")))
	var out strings.Builder
	out.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\', '\n':
			out.WriteByte('\\')
			out.WriteByte(c)
		case '\r':
			out.WriteString(`\r`)
		case 0:
			out.WriteString(`\000`)
		default:
			out.WriteByte(c)
		}
	}
	out.WriteByte('"')
	return out.String()
}
