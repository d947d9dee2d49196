package lua

import "math"

// mathUnary has the functions of one number. price is the charge for a call.
var mathUnary = []struct {
	name  string
	price int64
	fn    func(float64) float64
}{
	{"abs", 0, math.Abs},
	{"acos", elementarySteps, acos},
	{"asin", elementarySteps, asin},
	{"atan", elementarySteps, atan},
	{"ceil", 0, math.Ceil},
	{"cos", elementarySteps, cos},
	{"cosh", elementarySteps, cosh},
	{"deg", 0, func(x float64) float64 { return x / (math.Pi / 180) }},
	{"exp", elementarySteps, exp},
	{"floor", 0, math.Floor},
	{"log", elementarySteps, log},
	{"log10", elementarySteps, log10},
	{"rad", 0, func(x float64) float64 { return float64(x * (math.Pi / 180)) }},
	{"sin", elementarySteps, sin},
	{"sinh", elementarySteps, sinh},
	{"sqrt", 0, squareRoot},
	{"tan", elementarySteps, tan},
	{"tanh", elementarySteps, tanh},
}

func squareRoot(x float64) float64 {
	if r := math.Sqrt(x); r == r {
		return r
	}
	return nan(x, x)
}

func (b *libraryBuilder) mathLibrary() *table {
	t := b.table([]entry{
		{"atan2", mathBinary(atan2)},
		{"fmod", mathBinary(fmod)},
		{"mod", mathBinary(fmod)},
		{"pow", mathBinary(pow)},
		{"frexp", mathFrexp},
		{"ldexp", mathLdexp},
		{"max", mathMax},
		{"min", mathMin},
		{"modf", mathModf},
		{"random", mathRandom},
		{"randomseed", mathRandomSeed},
	})
	for _, f := range mathUnary {
		b.l.lastID++
		b.set(t, f.name, value{o: &builtin{name: f.name, id: b.l.lastID, fn: func(l *state, args []value) (int, *raised) {
			x, err := l.checkNumber(args, 1)
			if err != nil {
				return 0, err
			}
			l.charge(f.price)
			return l.one(number(f.fn(x)))
		}}})
	}
	b.set(t, "pi", number(math.Pi))
	b.set(t, "huge", number(math.Inf(1)))
	return t
}

func mathBinary(f func(x, y float64) float64) func(l *state, args []value) (int, *raised) {
	return func(l *state, args []value) (int, *raised) {
		x, err := l.checkNumber(args, 1)
		if err != nil {
			return 0, err
		}
		y, err := l.checkNumber(args, 2)
		if err != nil {
			return 0, err
		}
		l.charge(elementarySteps)
		return l.one(number(f(x, y)))
	}
}

func mathFrexp(l *state, args []value) (int, *raised) {
	x, err := l.checkNumber(args, 1)
	if err != nil {
		return 0, err
	}
	fraction, exponent := x, 0
	if x == x {
		fraction, exponent = math.Frexp(x)
	}
	l.push(number(fraction))
	l.push(number(float64(exponent)))
	return 2, nil
}

func mathLdexp(l *state, args []value) (int, *raised) {
	x, err := l.checkNumber(args, 1)
	if err != nil {
		return 0, err
	}
	exponent, err := l.checkInt(args, 2)
	if err != nil {
		return 0, err
	}
	if x == x {
		x = math.Ldexp(x, min(max(exponent, -5000), 5000))
	}
	return l.one(number(x))
}

func mathModf(l *state, args []value) (int, *raised) {
	x, err := l.checkNumber(args, 1)
	if err != nil {
		return 0, err
	}
	whole, fraction := x, x
	switch {
	case math.IsInf(x, 0):
		fraction = math.Copysign(0, x)
	case x == x:
		whole = math.Trunc(x)
		fraction = math.Copysign(x-whole, x)
	}
	l.push(number(whole))
	l.push(number(fraction))
	return 2, nil
}

func mathMax(l *state, args []value) (int, *raised) {
	return l.extreme(args, func(x, best float64) bool { return x > best })
}

func mathMin(l *state, args []value) (int, *raised) {
	return l.extreme(args, func(x, best float64) bool { return x < best })
}

func (l *state) extreme(args []value, better func(x, best float64) bool) (int, *raised) {
	best, err := l.checkNumber(args, 1)
	if err != nil {
		return 0, err
	}
	l.charge(int64(len(args)) / 4)
	for n := 2; n <= len(args); n++ {
		x, err := l.checkNumber(args, n)
		if err != nil {
			return 0, err
		}
		if better(x, best) {
			best = x
		}
	}
	return l.one(number(best))
}

// math.random returns the numbers of SplitMix64 for [Env.Seed]; after math.randomseed it returns those of lrand48, as in
// Redis. SplitMix64 has 64 bits of state instead of 48, so two scripts rarely draw the same numbers.

const (
	randomMax = 1<<31 - 1
	// randomStart is the state of a Redis that has just started.
	randomStart = 0x1234ABCD330E
	randomMask  = 1<<48 - 1
)

func randomSeed(seed int32) uint64 { return uint64(uint32(seed))<<16 | 0x330E }

func (l *state) nextRandom() float64 {
	if l.seed != 0 {
		return float64(l.splitMix()>>33%randomMax) / randomMax
	}
	l.random = (l.random*0x5DEECE66D + 0xB) & randomMask
	return float64(l.random>>17%randomMax) / randomMax
}

// splitMix is the next number of SplitMix64 (Steele, Lea, Flood 2014).
func (l *state) splitMix() uint64 {
	l.seed += 0x9E3779B97F4A7C15
	z := l.seed
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

func mathRandom(l *state, args []value) (int, *raised) {
	r := l.nextRandom()
	low, high := int32(1), int32(0)
	switch len(args) {
	case 0:
		return l.one(number(r))
	case 1:
		n, err := l.checkInt(args, 1)
		if err != nil {
			return 0, err
		}
		high = int32(n)
	case 2:
		from, err := l.checkInt(args, 1)
		if err != nil {
			return 0, err
		}
		to, err := l.checkInt(args, 2)
		if err != nil {
			return 0, err
		}
		low, high = int32(from), int32(to)
	default:
		return 0, l.fail("wrong number of arguments")
	}
	if low > high {
		return 0, l.argError(len(args), "interval is empty")
	}
	return l.one(number(math.Floor(float64(r*float64(high-low+1))) + float64(low)))
}

func mathRandomSeed(l *state, args []value) (int, *raised) {
	seed, err := l.checkInt(args, 1)
	if err != nil {
		return 0, err
	}
	l.random, l.seed = randomSeed(int32(seed)), 0
	return 0, nil
}
