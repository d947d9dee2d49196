package lua

import "math/bits"

// bitFunctions is the BitOp library: operations on 32 bits.
var bitFunctions = []entry{
	{"tobit", bitToBit},
	{"tohex", bitToHex},
	{"bnot", func(l *state, args []value) (int, *raised) {
		x, err := l.checkBits(args, 1)
		return l.bits(^x, err)
	}},
	{"bswap", func(l *state, args []value) (int, *raised) {
		x, err := l.checkBits(args, 1)
		return l.bits(bits.ReverseBytes32(x), err)
	}},
	{"band", func(l *state, args []value) (int, *raised) {
		return l.foldBits(args, func(a, b uint32) uint32 { return a & b })
	}},
	{"bor", func(l *state, args []value) (int, *raised) {
		return l.foldBits(args, func(a, b uint32) uint32 { return a | b })
	}},
	{"bxor", func(l *state, args []value) (int, *raised) {
		return l.foldBits(args, func(a, b uint32) uint32 { return a ^ b })
	}},
	{"lshift", func(l *state, args []value) (int, *raised) {
		return l.shiftBits(args, func(x uint32, n int) uint32 { return x << n })
	}},
	{"rshift", func(l *state, args []value) (int, *raised) {
		return l.shiftBits(args, func(x uint32, n int) uint32 { return x >> n })
	}},
	{"arshift", func(l *state, args []value) (int, *raised) {
		return l.shiftBits(args, func(x uint32, n int) uint32 { return uint32(int32(x) >> n) })
	}},
	{"rol", func(l *state, args []value) (int, *raised) {
		return l.shiftBits(args, bits.RotateLeft32)
	}},
	{"ror", func(l *state, args []value) (int, *raised) {
		return l.shiftBits(args, func(x uint32, n int) uint32 { return bits.RotateLeft32(x, -n) })
	}},
}

// checkBits returns an argument as 32 bits. It rounds a fraction to even, and drops the higher bits. The addition of
// 2^52 + 2^51 does both.
func (l *state) checkBits(args []value, n int) (uint32, *raised) {
	x, err := l.checkNumber(args, n)
	const shift = 1<<52 + 1<<51
	return uint32(floatBits(x + shift)), err
}

func (l *state) bits(x uint32, err *raised) (int, *raised) {
	if err != nil {
		return 0, err
	}
	return l.one(number(float64(int32(x))))
}

func bitToBit(l *state, args []value) (int, *raised) { return l.bits(l.checkBits(args, 1)) }

func (l *state) foldBits(args []value, f func(a, b uint32) uint32) (int, *raised) {
	x, err := l.checkBits(args, 1)
	for n := 2; n <= len(args) && err == nil; n++ {
		var y uint32
		y, err = l.checkBits(args, n)
		x = f(x, y)
	}
	return l.bits(x, err)
}

func (l *state) shiftBits(args []value, f func(x uint32, n int) uint32) (int, *raised) {
	x, err := l.checkBits(args, 1)
	if err != nil {
		return 0, err
	}
	n, err := l.checkBits(args, 2)
	return l.bits(f(x, int(n&31)), err)
}

func bitToHex(l *state, args []value) (int, *raised) {
	x, err := l.checkBits(args, 1)
	if err != nil {
		return 0, err
	}
	n := int32(8)
	if len(args) > 1 {
		digits, err := l.checkBits(args, 2)
		if err != nil {
			return 0, err
		}
		n = int32(digits)
	}
	alphabet := "0123456789abcdef"
	if n < 0 {
		n, alphabet = -n, "0123456789ABCDEF"
	}
	if n > 8 || n < 0 {
		n = 8
	}
	text := make([]byte, n)
	for i := range text {
		text[i] = alphabet[x>>(4*(int(n)-1-i))&15]
	}
	return l.one(l.newString(string(text)))
}
