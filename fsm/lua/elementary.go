package lua

import (
	"math"
	"math/big"
)

// elementarySteps is the charge for a function of this file, which takes about as long as this number of instructions.
const elementarySteps = 50

// tiny is the bound below which a function f with f(x) = x + O(x^3) rounds to x.
const tiny = 1.0 / (1 << 28)

func exp(x float64) float64 {
	switch {
	case x != x:
		return x
	case x > 710:
		return math.Inf(1)
	case x < -746:
		return 0
	}
	return expDouble(fromFloat(x)).float()
}

func log(x float64) float64 {
	if r, special := logSpecial(x, badNaN); special {
		return r
	}
	return logDouble(x).float()
}

func log10(x float64) float64 {
	if r, special := logSpecial(x, goodNaN); special {
		return r
	}
	return logDouble(x).mul(log10e).float()
}

// logSpecial returns the logarithm of x if it is not finite. For a negative number it is invalid.
func logSpecial(x, invalid float64) (float64, bool) {
	switch {
	case x != x || math.IsInf(x, 1):
		return x, true
	case x < 0:
		return invalid, true
	case x == 0:
		return math.Inf(-1), true
	default:
		return 0, false
	}
}

// pow returns x^y with the special cases of C.
func pow(x, y float64) float64 {
	switch {
	case y == 0 || x == 1:
		return 1
	case y == 1:
		return x
	case x != x || y != y:
		return nan(x, y)
	case y == 2:
		return mul(x, x)
	}
	isInteger := math.Trunc(y) == y
	isOdd := isInteger && math.Abs(y) < 1<<53 && math.Mod(y, 2) != 0
	negative := isOdd && math.Signbit(x)
	switch a := math.Abs(x); {
	case math.IsInf(y, 0):
		return powInfinite(a, y > 0)
	case x == 0 || math.IsInf(x, 0):
		r := math.Inf(1)
		if (a == 0) == (y > 0) {
			r = 0
		}
		return withSign(r, negative)
	case x < 0 && !isInteger:
		return badNaN
	default:
		return withSign(powFinite(a, y), negative)
	}
}

func withSign(r float64, negative bool) float64 {
	if negative {
		return neg(r)
	}
	return r
}

// powInfinite returns a^inf or a^-inf.
func powInfinite(a float64, positive bool) float64 {
	switch {
	case a == 1:
		return 1
	case (a > 1) == positive:
		return math.Inf(1)
	default:
		return 0
	}
}

func powFinite(a, y float64) float64 {
	exponent := logDouble(a).mul(fromFloat(y))
	switch {
	case exponent.hi > 710 || math.IsInf(y, 1) || exponent.hi != exponent.hi && (a > 1) == (y > 0):
		return math.Inf(1)
	case exponent.hi < -746 || exponent.hi != exponent.hi:
		return 0
	}
	return expDouble(exponent).float()
}

func sinh(x float64) float64 {
	a := math.Abs(x)
	switch {
	case a < tiny || x != x || math.IsInf(x, 0):
		return x
	case a > 711:
		return math.Copysign(math.Inf(1), x)
	case a > 40:
		return math.Copysign(expDouble(fromFloat(a).sub(ln2)).float(), x)
	}
	m := expm1Double(fromFloat(a))
	return math.Copysign(m.add(m.div(m.add(oneDouble))).scale(-1).float(), x)
}

func cosh(x float64) float64 {
	a := math.Abs(x)
	switch {
	case x != x:
		return x
	case a > 711:
		return math.Inf(1)
	case a > 40:
		return expDouble(fromFloat(a).sub(ln2)).float()
	}
	e := expDouble(fromFloat(a))
	return e.add(oneDouble.div(e)).scale(-1).float()
}

func tanh(x float64) float64 {
	a := math.Abs(x)
	switch {
	case a < tiny || x != x:
		return x
	case a > 22:
		return math.Copysign(1, x)
	}
	m := expm1Double(fromFloat(2 * a))
	return math.Copysign(m.div(m.add(fromFloat(2))).float(), x)
}

// reduce returns x - k*pi/2 for the k nearest to x/(pi/2), and k modulo 4.
//
// Requires: x is finite.
func reduce(x float64) (double, int) {
	if math.Abs(x) >= 1<<27 {
		return reduceLarge(x)
	}
	k := math.Floor(x/piHalf.hi + 0.5)
	r := fromFloat(x).sub(twoProduct(k, piHalf.hi)).sub(twoProduct(k, piHalf.lo)).sub(twoProduct(k, piTail3))
	return r, int(int64(k) & 3)
}

// twoOverPi has 1216 bits of 2/pi, which suffice for the largest float.
const twoOverPi = "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484" +
	"e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b" +
	"3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6bab"

const twoOverPiBits = 1216

// reduceLarge is reduce for large numbers. It computes 128 bits of the fraction of |x| * 2/pi with integers.
func reduceLarge(x float64) (double, int) {
	fraction, exponent := math.Frexp(math.Abs(x))
	product, _ := new(big.Int).SetString(twoOverPi, 16)
	product.Mul(product, big.NewInt(int64(math.Ldexp(fraction, 53))))
	// The product is the quotient times 2^point.
	point := twoOverPiBits + 53 - exponent
	quotient := new(big.Int).Rsh(product, uint(point))
	k := int(new(big.Int).And(quotient, big.NewInt(3)).Int64())
	product.Sub(product, quotient.Lsh(quotient, uint(point)))
	product.Rsh(product, uint(point-128))
	low := new(big.Int).And(product, new(big.Int).SetUint64(1<<64-1))
	high := new(big.Int).Rsh(product, 64).Uint64()
	turn := exactUint(high, -64).add(exactUint(low.Uint64(), -128))
	if turn.hi > 0.5 {
		turn = turn.sub(oneDouble)
		k++
	}
	r := turn.mul(piHalf)
	if x < 0 {
		return r.neg(), -k & 3
	}
	return r, k & 3
}

// exactUint returns the exact n * 2^scale.
func exactUint(n uint64, scale int) double {
	return twoSum(math.Ldexp(float64(n>>32), scale+32), math.Ldexp(float64(n&(1<<32-1)), scale))
}

// sinCos returns the sine and cosine of a finite x.
func sinCos(x float64) (sin, cos double) {
	r, k := reduce(x)
	s, c := sinCosDouble(r)
	switch k {
	case 0:
		return s, c
	case 1:
		return c, s.neg()
	case 2:
		return s.neg(), c.neg()
	default:
		return c.neg(), s
	}
}

func sin(x float64) float64 {
	switch {
	case math.IsInf(x, 0):
		return badNaN
	case x != x || math.Abs(x) < tiny:
		return x
	}
	s, _ := sinCos(x)
	return s.float()
}

func cos(x float64) float64 {
	switch {
	case math.IsInf(x, 0):
		return badNaN
	case x != x:
		return x
	}
	_, c := sinCos(x)
	return c.float()
}

func tan(x float64) float64 {
	switch {
	case math.IsInf(x, 0):
		return badNaN
	case x != x || math.Abs(x) < tiny:
		return x
	}
	s, c := sinCos(x)
	return s.div(c).float()
}

// leg returns the square root of 1 - x*x.
//
// Requires: |x| <= 1.
func leg(x float64) double { return twoSum(1, x).mul(twoSum(1, -x)).sqrt() }

func asin(x float64) float64 {
	a := math.Abs(x)
	switch {
	case x != x || a < tiny:
		return x
	case a > 1:
		return goodNaN
	}
	return math.Copysign(atan2Double(fromFloat(a), leg(x)).float(), x)
}

func acos(x float64) float64 {
	switch {
	case x != x:
		return x
	case math.Abs(x) > 1:
		return goodNaN
	case x == 1:
		return 0
	}
	angle := atan2Double(leg(x), fromFloat(math.Abs(x)))
	if x < 0 {
		angle = piTwo.sub(angle)
	}
	return angle.float()
}

func atan(x float64) float64 {
	a := math.Abs(x)
	switch {
	case x != x || a < tiny:
		return x
	case a > 1e18:
		return math.Copysign(piHalf.hi, x)
	}
	return math.Copysign(atan2Double(fromFloat(a), oneDouble).float(), x)
}

func atan2(y, x float64) float64 {
	if y != y || x != x {
		return nan(y, x)
	}
	if y == 0 || x == 0 || math.IsInf(y, 0) || math.IsInf(x, 0) {
		return math.Atan2(y, x) // a multiple of a quarter of pi
	}
	// The scaled operands neither overflow nor underflow.
	_, ey := math.Frexp(y)
	_, ex := math.Frexp(x)
	switch {
	case ey-ex > 60:
		return math.Copysign(piHalf.hi, y)
	case ex-ey > 60 && x > 0:
		return y / x
	case ex-ey > 60:
		return math.Copysign(piTwo.hi, y)
	}
	angle := atan2Double(fromFloat(math.Ldexp(math.Abs(y), -ey)), fromFloat(math.Ldexp(math.Abs(x), -ey)))
	if x < 0 {
		angle = piTwo.sub(angle)
	}
	return math.Copysign(angle.float(), y)
}

// fmod returns the exact remainder of x/y with the sign of x.
func fmod(x, y float64) float64 {
	if r := math.Mod(x, y); r == r {
		return r
	}
	return nan(x, y)
}
