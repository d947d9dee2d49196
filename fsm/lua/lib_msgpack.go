package lua

import (
	"encoding/binary"
	"math"
)

// The cmsgpack library, version 0.4.0.

// msgpackNesting is the depth to which tables are packed. Deeper tables become nil.
const msgpackNesting = 16

// msgpackDepth is the depth to which structures are unpacked: each level takes room on Lua's stack.
const msgpackDepth = 3900

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

// unsettledBytes is the number of bytes that a buffer may grow before a charge.
const unsettledBytes = 1 << 10

// packer writes values.
type packer struct {
	l       *state
	out     []byte
	charged int
	// taken is the charge for the buffer so far.
	taken int64
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

// take charges for n bytes of the buffer, twice, as the buffer grows by doubling.
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

// header writes a length: in the first byte if the length fits into so many bits, else behind a byte
// that says how many bytes the length takes. narrow is 0 if a length of one byte has no form.
func (p *packer) header(fix byte, fits int, narrow, wide byte, n int) {
	switch {
	case n < 1<<fits:
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
	if len(p.out)-p.charged >= unsettledBytes && !p.l.env.Legacy {
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
		if level < msgpackNesting {
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

// table writes a table whose keys are 1…n as an array, any other as a map.
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
