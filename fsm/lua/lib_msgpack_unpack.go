package lua

import (
	"math"
	"strconv"
)

// unpacker reads values.
type unpacker struct {
	l     *state
	src   string // what is left
	depth int
}

func msgpackUnpack(l *state, args []value) (int, *raised) { return l.unpackMessages(args, 0, 0) }

func msgpackUnpackOne(l *state, args []value) (int, *raised) {
	offset, err := l.optInt64(args, 2, 0)
	if err != nil {
		return 0, err
	}
	return l.unpackMessages(args, 1, offset)
}

func msgpackUnpackLimit(l *state, args []value) (int, *raised) {
	limit, err := l.checkInt64(args, 2)
	if err != nil {
		return 0, err
	}
	offset, err := l.optInt64(args, 3, 0)
	if err != nil {
		return 0, err
	}
	return l.unpackMessages(args, limit, offset)
}

// unpackMessages reads up to limit values from an offset on; all for 0 and 0. Unless all are read, the
// first result is the next offset.
func (l *state) unpackMessages(args []value, limit, offset int64) (int, *raised) {
	s, err := l.checkString(args, 1)
	if err != nil {
		return 0, err
	}
	all := limit == 0 && offset == 0
	switch {
	case offset < 0 || limit < 0:
		return 0, l.fail("Invalid request to unpack with offset of " + strconv.Itoa(int(int32(offset))) +
			" and limit of " + strconv.Itoa(len(s)) + ".")
	case offset > int64(len(s)):
		return 0, l.fail("Start offset " + strconv.Itoa(int(int32(offset))) + " greater than input length " +
			strconv.Itoa(len(s)) + ".")
	case all:
		limit = math.MaxInt32
	}
	u := unpacker{l: l, src: s[offset:]}
	first := l.top
	if !all {
		l.push(nilValue)
	}
	for n := int64(0); u.src != "" && n < limit; n++ {
		if int(n)+len(args) >= maxResults-2 {
			return 0, l.fail("stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)")
		}
		v, err := u.unpack()
		if err != nil {
			return 0, err
		}
		l.needStack(1)
		l.push(v)
	}
	if !all {
		next := len(s) - len(u.src)
		if u.src == "" {
			next = -1
		}
		l.stack[first] = number(float64(next))
	}
	return l.top - first, nil
}

// take returns the next n bytes.
func (u *unpacker) take(n int) (string, *raised) {
	if len(u.src) < n {
		return "", u.l.fail("Missing bytes in input.")
	}
	s := u.src[:n]
	u.src = u.src[n:]
	return s, nil
}

// uint reads an unsigned integer of n bytes.
func (u *unpacker) uint(n int) (uint64, *raised) {
	s, err := u.take(n)
	v := uint64(0)
	for i := range len(s) {
		v = v<<8 | uint64(s[i])
	}
	return v, err
}

func (u *unpacker) unpack() (value, *raised) {
	u.l.charge(1)
	b, err := u.uint(1)
	if err != nil {
		return nilValue, err
	}
	switch {
	case b <= 0x7F:
		return number(float64(b)), nil
	case b <= 0x8F:
		return u.nested(u.hash, b&15)
	case b <= 0x9F:
		return u.nested(u.array, b&15)
	case b <= 0xBF:
		return u.text(b & 31)
	case b >= 0xE0:
		return number(float64(int8(b))), nil
	}
	switch b {
	case 0xC0:
		return nilValue, nil
	case 0xC2:
		return falseValue, nil
	case 0xC3:
		return trueValue, nil
	case 0xCA, 0xCB, 0xCC, 0xCD, 0xCE, 0xCF, 0xD0, 0xD1, 0xD2, 0xD3:
		return u.number(byte(b))
	case 0xD9, 0xDA, 0xDB, 0xDC, 0xDD, 0xDE, 0xDF:
		return u.sized(byte(b))
	default:
		return nilValue, u.l.fail("Bad data format in input.")
	}
}

func (u *unpacker) number(b byte) (value, *raised) {
	width := 1 << (b & 3) // CC…CF and D0…D3 are integers of 1, 2, 4 and 8 bytes
	switch b {
	case 0xCA:
		n, err := u.uint(4)
		return number(float64(math.Float32frombits(uint32(n)))), err
	case 0xCB:
		n, err := u.uint(8)
		return number(math.Float64frombits(n)), err
	}
	n, err := u.uint(width)
	if b >= 0xD0 || width == 8 { // an unsigned one of 8 bytes goes through a signed type
		shift := 64 - 8*width
		return number(float64(int64(n<<shift) >> shift)), err
	}
	return number(float64(n)), err
}

// sized reads a value behind a length of one or more bytes.
func (u *unpacker) sized(b byte) (value, *raised) {
	width := 0
	switch b {
	case 0xD9:
		width = 1
	case 0xDA, 0xDC, 0xDE:
		width = 2
	default:
		width = 4
	}
	n, err := u.uint(width)
	switch {
	case err != nil:
		return nilValue, err
	case b <= 0xDB:
		return u.text(n)
	case b <= 0xDD:
		return u.nested(u.array, n)
	default:
		return u.nested(u.hash, n)
	}
}

func (u *unpacker) text(n uint64) (value, *raised) {
	s, err := u.take(int(n))
	if err != nil {
		return nilValue, err
	}
	return u.l.newString(s), nil
}

func (u *unpacker) nested(read func(n uint64) (value, *raised), n uint64) (value, *raised) {
	if u.depth >= msgpackDepth {
		return nilValue, u.l.fail("stack overflow (in function mp_decode_to_lua_array)")
	}
	u.depth++
	v, err := read(n)
	u.depth--
	return v, err
}

func (u *unpacker) array(n uint64) (value, *raised) {
	t := u.l.newTable(0, 0)
	for i := range int(n) {
		v, err := u.unpack()
		if err != nil {
			return nilValue, err
		}
		t.setInt(u.l, i+1, v)
	}
	return value{o: t}, nil
}

func (u *unpacker) hash(n uint64) (value, *raised) {
	t := u.l.newTable(0, 0)
	for range n {
		k, err := u.unpack()
		if err != nil {
			return nilValue, err
		}
		v, err := u.unpack()
		if err != nil {
			return nilValue, err
		}
		if err := u.l.checkKey(k); err != nil {
			return nilValue, err
		}
		t.set(u.l, k, v)
	}
	return value{o: t}, nil
}
