package lua

import (
	"encoding/binary"
	"math"
	"strconv"
)

const (
	// maxPackDepth is the nesting of tables from which pack replaces tables by nil.
	maxPackDepth = 16
	// maxUnpackDepth limits the nesting of structures for unpack, as Lua's stack does in Redis.
	maxUnpackDepth = 3900
	// maxUnchargedBytes is the number of bytes after which pack charges its buffer.
	maxUnchargedBytes = 1 << 10
)

// msgpackLibrary returns cmsgpack 0.4.0.

func (b *libraryBuilder) msgpackLibrary() *table {
	t := b.table([]entry{
		{"pack", msgpackPack},
		{"unpack", msgpackUnpack},
		{"unpack_one", msgpackUnpackOne},
		{"unpack_limit", msgpackUnpackLimit},
	})
	b.set(t, "_NAME", constant("cmsgpack"))
	b.set(t, "_VERSION", constant("lua-cmsgpack 0.4.0"))
	b.set(t, "_COPYRIGHT", constant("Copyright (C) 2012, Salvatore Sanfilippo"))
	b.set(t, "_DESCRIPTION", constant("MessagePack C implementation for Lua"))
	return t
}

// packer packs values.
type packer struct {
	l   *state
	out []byte
	// charged is the length of out at the last charge, and taken the charge for memory so far.
	charged int
	taken   int64
}

func msgpackPack(l *state, args []value) (int, *raised) {
	if len(args) == 0 {
		return 0, l.argError(0, "MessagePack pack needs input.")
	}
	p := packer{l: l}
	for _, v := range args {
		if err := p.pack(v, 0); err != nil {
			return 0, err
		}
	}
	p.chargeWritten()
	text := l.stringOf(p.out)
	l.release(p.taken)
	return l.one(text)
}

// take charges twice the memory of n bytes of the buffer, since the buffer grows by doubling.
func (p *packer) take(n int) {
	p.l.alloc(2 * int64(n))
	p.taken += 2 * int64(n)
}

func (p *packer) chargeWritten() {
	n := len(p.out) - p.charged
	p.take(n)
	p.l.charge(int64(n)>>6 + 1)
	p.charged = len(p.out)
}

// header appends a type and a length n. A length of up to fixBits bits is in the first byte, fix. Otherwise the first
// byte is narrow for a length of one byte, unless narrow is 0, wide for two bytes, and wide+1 for four.
func (p *packer) header(fix byte, fixBits int, narrow, wide byte, n int) {
	switch {
	case n < 1<<fixBits:
		p.out = append(p.out, fix|byte(n))
	case narrow != 0 && n <= 0xFF:
		p.out = append(p.out, narrow, byte(n))
	case n <= 0xFFFF:
		p.out = binary.BigEndian.AppendUint16(append(p.out, wide), uint16(n))
	default:
		p.out = binary.BigEndian.AppendUint32(append(p.out, wide+1), uint32(n))
	}
}

func (p *packer) pack(v value, level int) *raised {
	p.l.charge(1)
	if len(p.out)-p.charged >= maxUnchargedBytes {
		p.chargeWritten()
	}
	switch x := v.o.(type) {
	case *str:
		p.take(len(x.s))
		p.header(0xA0, 5, 0xD9, 0xDA, len(x.s))
		p.out = append(p.out, x.s...)
		p.chargeWritten()
	case trueTag:
		p.out = append(p.out, 0xC3)
	case falseTag:
		p.out = append(p.out, 0xC2)
	case numberTag:
		p.number(v.n)
	case *table:
		if level < maxPackDepth {
			p.chargeWritten()
			return p.table(x, level)
		}
		p.out = append(p.out, 0xC0)
	default:
		p.out = append(p.out, 0xC0)
	}
	return nil
}

func (p *packer) number(n float64) {
	if i := toInt64(n); float64(i) == n {
		p.integer(i)
		return
	}
	if f := float32(n); float64(f) == n {
		p.out = binary.BigEndian.AppendUint32(append(p.out, 0xCA), math.Float32bits(f))
		return
	}
	p.out = binary.BigEndian.AppendUint64(append(p.out, 0xCB), math.Float64bits(n))
}

func (p *packer) integer(n int64) {
	switch {
	case n >= -32 && n <= 127:
		p.out = append(p.out, byte(n))
	case n >= 0 && n <= 0xFF:
		p.out = append(p.out, 0xCC, byte(n))
	case n >= 0 && n <= 0xFFFF:
		p.out = binary.BigEndian.AppendUint16(append(p.out, 0xCD), uint16(n))
	case n >= 0 && n <= 0xFFFFFFFF:
		p.out = binary.BigEndian.AppendUint32(append(p.out, 0xCE), uint32(n))
	case n >= 0:
		p.out = binary.BigEndian.AppendUint64(append(p.out, 0xCF), uint64(n))
	case n >= math.MinInt8:
		p.out = append(p.out, 0xD0, byte(n))
	case n >= math.MinInt16:
		p.out = binary.BigEndian.AppendUint16(append(p.out, 0xD1), uint16(n))
	case n >= math.MinInt32:
		p.out = binary.BigEndian.AppendUint32(append(p.out, 0xD2), uint32(n))
	default:
		p.out = binary.BigEndian.AppendUint64(append(p.out, 0xD3), uint64(n))
	}
}

// table packs a table with the keys 1…n as an array, and any other table as a map.
func (p *packer) table(t *table, level int) *raised {
	isArray, entries, largest := true, 0, 0.0
	for key := nilValue; ; {
		k, _, _ := t.next(p.l, key)
		if k.isNil() {
			break
		}
		p.l.charge(1)
		n, isNumber := k.float()
		isArray = isArray && isNumber && n > 0 && float64(toInt32(n)) == n
		largest = max(largest, n)
		entries++
		key = k
	}
	if isArray && int(largest) == entries {
		return p.array(t, level)
	}
	p.header(0x80, 4, 0, 0xDE, entries)
	for key := nilValue; ; {
		k, v, _ := t.next(p.l, key)
		if k.isNil() {
			return nil
		}
		if err := p.pack(k, level+1); err != nil {
			return err
		}
		if err := p.pack(v, level+1); err != nil {
			return err
		}
		key = k
	}
}

func (p *packer) array(t *table, level int) *raised {
	n := t.length(p.l)
	p.header(0x90, 4, 0, 0xDC, n)
	for i := 1; i <= n; i++ {
		if err := p.pack(t.getInt(p.l, i), level+1); err != nil {
			return err
		}
	}
	return nil
}

// unpacker unpacks values.
type unpacker struct {
	l     *state
	src   string // the bytes that are not read yet
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

// unpackMessages unpacks up to limit values from an offset on. The first result is the next offset, or -1 at the end.
// If both arguments are 0, it unpacks all values, and returns no offset.
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
	if b >= 0xD0 || width == 8 { // as in Redis, an unsigned integer of 8 bytes is read as a signed one
		shift := 64 - 8*width
		return number(float64(int64(n<<shift) >> shift)), err
	}
	return number(float64(n)), err
}

// sized reads a length and a value of that length.
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
	if u.depth >= maxUnpackDepth {
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
