package lua

import "math"

// Elementary functions must return the same bits on all processors. Those of package math do not: some have assembly on
// some processors, and the compiler fuses multiplications with additions on others. The functions here compute with
// about 100 bits, as sums of two floats that are not evaluated. They use only operations that IEEE 754 defines to the
// last bit, and [math.FMA], which is exact. Rounded to 53 bits, nearly all results are correctly rounded, and so equal
// to those of glibc and Redis.

// double is hi + lo, with |lo| at most half a unit in the last place of hi.
type double struct{ hi, lo float64 }

// The constants, to 106 bits and more.
var (
	ln2     = double{0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56}
	piHalf  = double{0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54}
	piTwo   = double{0x1.921fb54442d18p+1, 0x1.1a62633145c07p-53}
	log10e  = double{0x1.bcb7b1526e50ep-2, 0x1.95355baaafad3p-57}
	piTail3 = -0x1.f1976b7ed8fbcp-110 // the third part of piHalf
)

func fromFloat(a float64) double { return double{a, 0} }

// float rounds to 53 bits.
func (a double) float() float64 { return a.hi + a.lo }

func twoSum(a, b float64) double {
	s := a + b
	t := s - a
	return double{s, (a - (s - t)) + (b - t)}
}

// quickTwoSum is twoSum for |a| >= |b|.
func quickTwoSum(a, b float64) double {
	s := a + b
	return double{s, b - (s - a)}
}

func twoProduct(a, b float64) double {
	p := float64(a * b)
	return double{p, math.FMA(a, b, -p)}
}

func (a double) add(b double) double {
	s, t := twoSum(a.hi, b.hi), twoSum(a.lo, b.lo)
	s = quickTwoSum(s.hi, s.lo+t.hi)
	return quickTwoSum(s.hi, s.lo+t.lo)
}

func (a double) neg() double { return double{-a.hi, -a.lo} }

func (a double) sub(b double) double { return a.add(b.neg()) }

func (a double) mul(b double) double {
	p := twoProduct(a.hi, b.hi)
	p.lo += float64(a.hi*b.lo) + float64(a.lo*b.hi)
	return quickTwoSum(p.hi, p.lo)
}

func (a double) div(b double) double {
	q1 := a.hi / b.hi
	r := a.sub(b.mul(fromFloat(q1)))
	q2 := r.hi / b.hi
	r = r.sub(b.mul(fromFloat(q2)))
	q := quickTwoSum(q1, q2)
	return q.add(fromFloat(r.hi / b.hi))
}

func (a double) sqrt() double {
	if a.hi == 0 {
		return double{}
	}
	r := math.Sqrt(a.hi)
	rest := a.sub(twoProduct(r, r))
	return quickTwoSum(r, rest.hi/float64(2*r))
}

// scale returns the exact a * 2^k.
func (a double) scale(k int) double { return double{math.Ldexp(a.hi, k), math.Ldexp(a.lo, k)} }

var oneDouble = double{1, 0}

// expParts returns m and k such that e^a is (1 + m) * 2^k.
//
// Requires: |a| < 750.
func expParts(a double) (m double, k int) {
	k = int(math.Floor(a.hi/ln2.hi + 0.5))
	const halvings = 9
	r := a.sub(ln2.mul(fromFloat(float64(k)))).scale(-halvings)
	// r is below 0.0007: nine terms of the series are enough.
	sum := fromFloat(1)
	for n := 10; n >= 2; n-- {
		sum = oneDouble.add(r.mul(sum).div(fromFloat(float64(n))))
	}
	m = r.mul(sum)
	for range halvings {
		m = m.scale(1).add(m.mul(m))
	}
	return m, k
}

func expDouble(a double) double {
	m, k := expParts(a)
	return oneDouble.add(m).scale(k)
}

// expm1Double returns e^a - 1, and loses no bits for a small a.
func expm1Double(a double) double {
	m, k := expParts(a)
	if k == 0 {
		return m
	}
	return oneDouble.add(m).scale(k).sub(oneDouble)
}

// logDouble returns the natural logarithm of a positive, finite number.
func logDouble(x float64) double {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m *= 2
		e--
	}
	f := m - 1
	s := f / (m + 1)
	z := float64(s * s)
	sum := 0.0
	for n := 21; n >= 1; n -= 2 {
		sum = 1/float64(n) + float64(z*sum)
	}
	y := fromFloat(float64(2 * float64(s*sum)))
	// y has 50 good bits. One step of Halley's method for e^y = m triples them.
	g := expm1Double(y)
	delta := fromFloat(f).sub(g).scale(1).div(fromFloat(f).add(g).add(fromFloat(2)))
	return y.add(delta).add(ln2.mul(fromFloat(float64(e))))
}

// sinCosDouble returns the sine and cosine of an angle.
//
// Requires: |a| is at most slightly more than pi/4.
func sinCosDouble(a double) (sin, cos double) {
	square := a.mul(a).neg()
	sin, cos = oneDouble, oneDouble
	for n := 28; n >= 2; n -= 2 {
		cos = oneDouble.add(cos.mul(square).div(fromFloat(float64(n * (n - 1)))))
		sin = oneDouble.add(sin.mul(square).div(fromFloat(float64(n * (n + 1)))))
	}
	return sin.mul(a), cos
}

// atan2Double returns the angle of the point (x, y).
//
// Requires: x >= 0, y >= 0, and one of them is not 0.
func atan2Double(y, x double) double {
	angle := fromFloat(roughAtan2(y.hi, x.hi))
	var s, c double
	if angle.hi > 0.8 {
		c, s = sinCosDouble(piHalf.sub(angle))
	} else {
		s, c = sinCosDouble(angle)
	}
	// The error of the angle is below 10^-11, and so equal to its tangent.
	err := y.mul(c).sub(x.mul(s)).div(x.mul(c).add(y.mul(s)))
	return angle.add(err)
}

// roughAtan2 is atan2Double with about 40 correct bits.
func roughAtan2(y, x float64) float64 {
	if y > x {
		return piHalf.hi - roughAtan2(x, y)
	}
	t := y / x
	const halvings = 3
	for range halvings {
		t /= 1 + math.Sqrt(1+float64(t*t))
	}
	z := -float64(t * t)
	sum := 0.0
	for n := 17; n >= 1; n -= 2 {
		sum = 1/float64(n) + float64(z*sum)
	}
	return float64(float64(t*sum) * (1 << halvings))
}
