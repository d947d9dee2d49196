package command

import (
	"math/big"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// INCRBYFLOAT of Redis uses the 80-bit long double of x86. A big.Float with precision 64, rounded to even, has the same
// mantissa. It is computed in software, so all processors agree.

const (
	longDoubleBits = 64
	// maxLongDoubleExponent is the exponent of 2 below which all long doubles are.
	maxLongDoubleExponent = 16384
	// minLongDoubleExponent is the exponent of 2 below which numbers are rounded to 0.
	minLongDoubleExponent = -16445
	// MaxFloatWord is the length of the longest number that Redis reads.
	MaxFloatWord = 5*1024 - 1
	// maxExponent is far above the exponents of long doubles, even after the longest mantissa, but small enough that
	// big.Float parses such a number at once.
	maxExponent = 50_000
)

// AddFloats returns a+b in the notation of INCRBYFLOAT.
func AddFloats(a, b string) (string, protocol.Value) {
	x, ok := ParseLongDouble(a)
	if !ok {
		return "", ErrNotFloat
	}
	y, ok := ParseLongDouble(b)
	if !ok {
		return "", ErrNotFloat
	}
	return AddLongDoubles(x, y)
}

// AddLongDoubles returns x+y in the notation of INCRBYFLOAT.
func AddLongDoubles(x, y *big.Float) (string, protocol.Value) {
	if x.IsInf() || y.IsInf() {
		return "", protocol.ErrNotFinite.Value()
	}
	sum := new(big.Float).SetPrec(longDoubleBits).Add(x, y)
	if sum.MantExp(nil) > maxLongDoubleExponent {
		return "", protocol.ErrNotFinite.Value()
	}
	return formatLongDouble(sum), protocol.Value{}
}

// ParseLongDouble parses a whole word as strtold of C does, but accepts no leading blanks.
func ParseLongDouble(s string) (*big.Float, bool) {
	if s == "" || len(s) > MaxFloatWord {
		return nil, false
	}
	digits := strings.ToLower(s)
	if s[0] == '+' || s[0] == '-' {
		digits = digits[1:]
	}
	if digits == "inf" || digits == "infinity" {
		return new(big.Float).SetInf(s[0] == '-'), true
	}
	mantissa, exponent, ok := SplitFloat(digits)
	if !ok {
		return nil, false
	}
	f := new(big.Float).SetPrec(longDoubleBits)
	if strings.Trim(mantissa, "0.") == "" {
		return f, true
	}
	// big.Float takes long for a huge exponent. A number with such an exponent is out of range for any mantissa.
	if n, ok := protocol.ParseInt(exponent); !ok || n > maxExponent {
		return nil, false
	}
	if _, _, err := f.Parse(s, 0); err != nil || f.Sign() == 0 {
		return nil, false
	}
	binary := f.MantExp(nil)
	return f, binary <= maxLongDoubleExponent && binary > minLongDoubleExponent
}

// SplitFloat splits a number in the grammar of strtold, in lower case and without a sign: decimal or hexadecimal digits
// with at most one point, then an exponent. big.Float alone would accept more, such as 0b1 and 1_000. The returned
// exponent has no sign and no leading zeros.
func SplitFloat(digits string) (mantissa, exponent string, ok bool) {
	allowed, mark := "0123456789.", "e"
	if rest, hexadecimal := strings.CutPrefix(digits, "0x"); hexadecimal {
		digits, allowed, mark = rest, "0123456789abcdef.", "p"
	}
	mantissa, exponent, marked := strings.Cut(digits, mark)
	if strings.Trim(mantissa, allowed) != "" || strings.Count(mantissa, ".") > 1 || strings.Trim(mantissa, ".") == "" {
		return "", "", false
	}
	if !marked {
		return mantissa, "0", true
	}
	if exponent != "" && (exponent[0] == '+' || exponent[0] == '-') {
		exponent = exponent[1:]
	}
	if exponent == "" || strings.Trim(exponent, "0123456789") != "" {
		return "", "", false
	}
	exponent = strings.TrimLeft(exponent, "0")
	if exponent == "" {
		exponent = "0"
	}
	return mantissa, exponent, true
}

// formatLongDouble formats as %.17Lf of printf, without trailing zeros.
func formatLongDouble(f *big.Float) string {
	s := f.Text('f', 17)
	s = strings.TrimRight(s, "0")
	s = strings.TrimSuffix(s, ".")
	if s == "-0" {
		return "0"
	}
	return s
}

// The work of a number of INCRBYFLOAT and of each of its digits. A number may have thousands of digits.
const (
	FloatWork = 4 << 10
	DigitWork = 64
)
