package protocol

import (
	"math"
	"strconv"
	"strings"
)

// FormatG formats f as %.<precision>g of C's printf: in the shorter of the fixed and the exponent form, without
// trailing zeros, with exponents of at least two digits. Requires: f is finite.
func FormatG(f float64, precision int) string {
	s := strconv.FormatFloat(f, 'e', precision-1, 64)
	mantissa, exponent, _ := strings.Cut(s, "e")
	x, _ := strconv.Atoi(exponent)
	if x >= -4 && x < precision {
		return trimZeros(strconv.FormatFloat(f, 'f', precision-1-x, 64))
	}
	return trimZeros(mantissa) + "e" + exponent
}

// FormatDouble formats f as Redis does since 7.2: "inf", "-inf", "nan", integers in digits, and others in the fewest
// digits that identify the double, by the rules of Redis's fpconv.
func FormatDouble(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	case f == 0 && math.Signbit(f):
		return "-0"
	case math.Abs(f) <= 1<<62 && f == math.Trunc(f):
		return strconv.FormatInt(int64(f), 10)
	}
	var buf [32]byte
	sign, text := "", strconv.AppendFloat(buf[:0], math.Abs(f), 'e', -1, 64)
	if f < 0 {
		sign = "-"
	}
	mantissa, exponent, _ := strings.Cut(string(text), "e")
	digits := strings.Replace(mantissa, ".", "", 1)
	x, _ := strconv.Atoi(exponent)
	return sign + placePoint(digits, x)
}

// placePoint formats digits with the point after the first, times ten to the power of x.
func placePoint(digits string, x int) string {
	behind := len(digits) - 1 - x // the number of digits after the point
	size := max(x, -x)
	switch {
	case behind <= 0 && size < len(digits)+7:
		return digits + strings.Repeat("0", -behind)
	case behind > 0 && (behind < 7 || size < 4):
		if x < 0 {
			return "0." + strings.Repeat("0", -x-1) + digits
		}
		return digits[:x+1] + "." + digits[x+1:]
	}
	mantissa := digits[:1]
	if len(digits) > 1 {
		mantissa += "." + digits[1:]
	}
	if x < 0 {
		return mantissa + "e-" + strconv.Itoa(size)
	}
	return mantissa + "e+" + strconv.Itoa(size)
}

func trimZeros(s string) string {
	if !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

// ParseInt parses a 64-bit decimal integer as strictly as Redis's string2ll: no blanks, no plus sign, no leading zeros,
// no minus zero.
func ParseInt(s string) (int64, bool) {
	digits := strings.TrimPrefix(s, "-")
	switch {
	case s == "0":
		return 0, true
	case digits == "", digits[0] < '1', digits[0] > '9', len(s) > 20:
		return 0, false
	case len(digits) > 18: // strconv returns the nearest number of the range
		n, err := strconv.ParseInt(s, 10, 64)
		return n, err == nil
	}
	n := int64(0)
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	if len(digits) < len(s) {
		n = -n
	}
	return n, true
}

// AppendQuoted appends word in quotation marks, with unprintable bytes escaped as by Redis's sdscatrepr.
func AppendQuoted[W ~string | ~[]byte](dst []byte, word W) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for i := range len(word) {
		switch b := word[i]; b {
		case '\\', '"':
			dst = append(dst, '\\', b)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		case '\a':
			dst = append(dst, `\a`...)
		case '\b':
			dst = append(dst, `\b`...)
		default:
			if b < ' ' || b > '~' {
				dst = append(dst, '\\', 'x', digits[b>>4], digits[b&15])
				continue
			}
			dst = append(dst, b)
		}
	}
	return append(dst, '"')
}
