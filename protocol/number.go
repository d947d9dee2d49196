package protocol

import (
	"math"
	"strconv"
	"strings"
)

// FormatG writes f as C's printf does with %.<precision>g: the shorter of the fixed and the exponent
// form, without trailing zeros, exponents of at least two digits. Requires: f is finite.
func FormatG(f float64, precision int) string {
	s := strconv.FormatFloat(f, 'e', precision-1, 64)
	mantissa, exponent, _ := strings.Cut(s, "e")
	x, _ := strconv.Atoi(exponent)
	if x >= -4 && x < precision {
		return trimZeros(strconv.FormatFloat(f, 'f', precision-1-x, 64))
	}
	return trimZeros(mantissa) + "e" + exponent
}

// FormatDouble writes f as Redis does in RESP3 (%.17g, "inf", "-inf", "nan").
func FormatDouble(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	if f == math.Trunc(f) && math.Abs(f) < 1e17 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return FormatG(f, 17)
}

func trimZeros(s string) string {
	if !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

// ParseInt reads a 64 bit decimal integer as strictly as Redis's string2ll: no
// blanks, no plus sign, no leading zeros, no minus zero.
func ParseInt(s string) (int64, bool) {
	switch {
	case s == "0":
		return 0, true
	case s == "" || len(s) > 20:
		return 0, false
	}
	digits := s
	if s[0] == '-' {
		digits = s[1:]
	}
	if digits == "" || digits[0] < '1' || digits[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
