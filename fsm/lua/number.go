package lua

import (
	"math"
	"strconv"
	"strings"
)

// Processors differ in the sign of the NaN that an invalid operation returns: it is negative on x86 and positive on
// ARM. tostring shows the sign. So all operations of this file return their NaN by nan, which returns the NaN of x86:
// the first operand that is NaN, or the negative NaN. The conversion of a product by float64() forbids a fused
// multiply-add.

// The engine converts floats to int, and the results must be the same on all nodes. So the package does not compile if
// an int has less than 64 bits.
const _ int = 1 << 62

// badNaN is the NaN of an invalid operation on x86, which prints as "-nan".
var badNaN = math.Float64frombits(0xFFF8000000000000)

// goodNaN prints as "nan".
var goodNaN = math.Float64frombits(0x7FF8000000000000)

// nan is the result of an invalid operation on a and b.
func nan(a, b float64) float64 {
	switch {
	case a != a:
		return a
	case b != b:
		return b
	default:
		return badNaN
	}
}

func add(a, b float64) float64 {
	if r := a + b; r == r {
		return r
	}
	return nan(a, b)
}

func sub(a, b float64) float64 {
	if r := a - b; r == r {
		return r
	}
	return nan(a, b)
}

func mul(a, b float64) float64 {
	if r := float64(a * b); r == r {
		return r
	}
	return nan(a, b)
}

func div(a, b float64) float64 {
	if r := a / b; r == r {
		return r
	}
	return nan(a, b)
}

// mod is a % b as Lua 5.1 defines it: a - floor(a/b)*b.
func mod(a, b float64) float64 {
	product := float64(math.Floor(a/b) * b)
	if r := a - product; r == r {
		return r
	}
	return nan(a, b)
}

func neg(a float64) float64 { return math.Float64frombits(math.Float64bits(a) ^ 1<<63) }

// toInt64 converts as the C cast to long long does on x86-64: a number out of range becomes the smallest integer.
func toInt64(f float64) int64 {
	if f >= -9223372036854775808 && f < 9223372036854775808 {
		return int64(f)
	}
	return math.MinInt64
}

// toInt32 converts as the C cast to int does on x86-64.
func toInt32(f float64) int {
	if f > -2147483649 && f < 2147483648 {
		return int(f)
	}
	return math.MinInt32
}

// toUint64 converts as the C cast to unsigned long long does on x86-64.
func toUint64(f float64) uint64 {
	if f >= 9223372036854775808 {
		return uint64(toInt64(f-9223372036854775808)) ^ 1<<63
	}
	return uint64(toInt64(f))
}

// appendNumber appends n in the format of tostring, which is C's %.14g.
func appendNumber(dst []byte, n float64) []byte { return appendG(dst, n, 14) }

// appendG appends n in C's format %.<precision>g.
func appendG(dst []byte, n float64, precision int) []byte {
	if precision >= 14 && n == math.Trunc(n) && math.Abs(n) < 1e14 && (n != 0 || !math.Signbit(n)) {
		return strconv.AppendInt(dst, int64(n), 10)
	}
	if out, special := appendNonFinite(dst, n); special {
		return out
	}
	return strconv.AppendFloat(dst, n, 'g', precision, 64)
}

// appendNonFinite appends n in the format of C's printf if n is infinite or NaN, and reports whether it is.
func appendNonFinite(dst []byte, n float64) (out []byte, special bool) {
	switch {
	case math.IsInf(n, 1):
		return append(dst, "inf"...), true
	case math.IsInf(n, -1):
		return append(dst, "-inf"...), true
	case n != n && math.Signbit(n):
		return append(dst, "-nan"...), true
	case n != n:
		return append(dst, "nan"...), true
	default:
		return dst, false
	}
}

func formatNumber(n float64) string {
	var buf [32]byte
	return string(appendNumber(buf[:0], n))
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

func trimSpace(s string) string {
	for s != "" && isSpace(s[0]) {
		s = s[1:]
	}
	for s != "" && isSpace(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

// parseNumber parses a number as Lua 5.1 with glibc does. It accepts blanks around the number, a sign, decimal and
// hexadecimal numbers with fraction and exponent, inf and nan.
func parseNumber(s string) (float64, bool) {
	if len(s) < 16 {
		if n, ok := parseDigits(s); ok {
			return n, true
		}
	}
	if zero := strings.IndexByte(s, 0); zero >= 0 {
		s = s[:zero] // C strings end there
	}
	s = trimSpace(s)
	sign := 1.0
	if s != "" && (s[0] == '-' || s[0] == '+') {
		if s[0] == '-' {
			sign = -1
		}
		s = s[1:]
	}
	if n, ok := parseWord(s); ok {
		return math.Copysign(n, sign), true
	}
	if !isNumeral(s) {
		return 0, false
	}
	if isHex(s) && !strings.ContainsAny(s, "pP") {
		s += "p0"
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(n, 0) {
		return 0, false
	}
	return math.Copysign(n, sign), true
}

// parseDigits is parseNumber for the most frequent case, a short unsigned integer.
func parseDigits(s string) (float64, bool) {
	n := int64(0)
	for i := range len(s) {
		c := s[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return float64(n), s != ""
}

func isHex(s string) bool { return len(s) > 1 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X') }

// isNumeral reports whether strtod accepts all of s as an unsigned decimal or hexadecimal number.
func isNumeral(s string) bool {
	isDigit, exponent := isDecimalDigit, byte('e')
	if isHex(s) {
		isDigit, exponent = isHexDigit, 'p'
		s = s[2:]
	}
	digits, i := 0, 0
	for ; i < len(s) && isDigit(s[i]); i++ {
		digits++
	}
	if i < len(s) && s[i] == '.' {
		for i++; i < len(s) && isDigit(s[i]); i++ {
			digits++
		}
	}
	if digits == 0 {
		return false
	}
	if i == len(s) {
		return true
	}
	if s[i]|0x20 != exponent {
		return false
	}
	i++
	if i < len(s) && (s[i] == '+' || s[i] == '-') {
		i++
	}
	if i == len(s) {
		return false
	}
	for ; i < len(s); i++ {
		if !isDecimalDigit(s[i]) {
			return false
		}
	}
	return true
}

func isDecimalDigit(c byte) bool { return c >= '0' && c <= '9' }

func isHexDigit(c byte) bool {
	return isDecimalDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// parseWord parses the words of strtod: inf, infinity, nan, nan(…).
func parseWord(s string) (float64, bool) {
	if s == "" || s[0]|0x20 != 'i' && s[0]|0x20 != 'n' {
		return 0, false
	}
	switch word := strings.ToLower(s); {
	case word == "inf" || word == "infinity":
		return math.Inf(1), true
	case word == "nan":
		return goodNaN, true
	case strings.HasPrefix(word, "nan(") && strings.HasSuffix(word, ")"):
		for i := len("nan("); i < len(word)-1; i++ {
			if c := word[i]; !isDecimalDigit(c) && (c < 'a' || c > 'z') && c != '_' {
				return 0, false
			}
		}
		return goodNaN, true
	default:
		return 0, false
	}
}

// numeralPrefix returns the length of the longest prefix of s that strtod accepts.
func numeralPrefix(s string) int {
	sign := 0
	if s != "" && (s[0] == '-' || s[0] == '+') {
		sign = 1
	}
	s = s[sign:]
	if s != "" && (s[0]|0x20 == 'i' || s[0]|0x20 == 'n') {
		if n := wordPrefix(s); n > 0 {
			return sign + n
		}
		return 0
	}
	isDigit, exponent, i := isDecimalDigit, byte('e'), 0
	if isHex(s) && len(s) > 2 && (isHexDigit(s[2]) || s[2] == '.' && len(s) > 3 && isHexDigit(s[3])) {
		isDigit, exponent, i = isHexDigit, 'p', 2
	}
	begin := i
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	digits := i - begin
	if i < len(s) && s[i] == '.' {
		point := i
		for i++; i < len(s) && isDigit(s[i]); i++ {
			digits++
		}
		if digits == 0 {
			i = point
		}
	}
	if digits == 0 {
		return 0
	}
	return sign + i + exponentPrefix(s[i:], exponent)
}

// exponentPrefix returns the length of the exponent at the start of s.
func exponentPrefix(s string, mark byte) int {
	if s == "" || s[0]|0x20 != mark {
		return 0
	}
	i := 1
	if i < len(s) && (s[i] == '+' || s[i] == '-') {
		i++
	}
	digits := i
	for i < len(s) && isDecimalDigit(s[i]) {
		i++
	}
	if i == digits {
		return 0
	}
	return i
}

// wordPrefix returns the length of the word for infinity or NaN at the start of s.
func wordPrefix(s string) int {
	for _, word := range [...]string{"infinity", "inf", "nan"} {
		if len(s) >= len(word) && strings.EqualFold(s[:len(word)], word) {
			return len(word)
		}
	}
	return 0
}
