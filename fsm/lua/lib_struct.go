package lua

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"
)

// structFunctions is the struct library, which packs values by a format.
var structFunctions = []entry{
	{"pack", structPack},
	{"size", structSize},
	{"unpack", structUnpack},
}

const (
	maxIntegerBytes = 32
	maxAlignment    = 8
)

// layout reads the options of a format.
type layout struct {
	l      *state
	format string
	pos    int
	big    bool // big-endian
	align  int
}

func (l *state) newLayout(args []value) (*layout, *raised) {
	format, err := l.checkString(args, 1)
	l.chargeBytes(len(format))
	return &layout{l: l, format: cString(format), align: 1}, err
}

// next returns the next option and the size of its value in bytes. ok is false at the end of the format.
func (f *layout) next() (option byte, size int, ok bool, err *raised) {
	if f.pos >= len(f.format) {
		return 0, 0, false, nil
	}
	f.l.charge(1)
	option = f.format[f.pos]
	f.pos++
	switch option {
	case 'b', 'B', 'x':
		size = 1
	case 'h', 'H':
		size = 2
	case 'l', 'L', 'T', 'd':
		size = 8
	case 'f':
		size = 4
	case 'c':
		size, err = f.number(1)
	case 'i', 'I':
		if size, err = f.number(4); err == nil && size > maxIntegerBytes {
			err = f.l.fail("integral size " + strconv.Itoa(size) + " is larger than limit of " + strconv.Itoa(maxIntegerBytes))
		}
	}
	return option, size, true, err
}

func (f *layout) number(otherwise int) (int, *raised) {
	if f.pos >= len(f.format) || !isDecimalDigit(f.format[f.pos]) {
		return otherwise, nil
	}
	n := 0
	for ; f.pos < len(f.format) && isDecimalDigit(f.format[f.pos]); f.pos++ {
		if n = n*10 + int(f.format[f.pos]-'0'); n > math.MaxInt32 {
			return 0, f.l.fail("integral size overflow")
		}
	}
	return n, nil
}

// padding returns the number of padding bytes before an option of this size at a position.
func (f *layout) padding(pos int, option byte, size int) int {
	if size == 0 || option == 'c' {
		return 0
	}
	size = min(size, f.align)
	return (size - pos&(size-1)) & (size - 1)
}

// control applies an option without a value, such as the byte order.
func (f *layout) control(option byte) *raised {
	switch option {
	case ' ':
	case '<':
		f.big = false
	case '>':
		f.big = true
	case '!':
		a, err := f.number(maxAlignment)
		if err != nil {
			return err
		}
		if a <= 0 || a&(a-1) != 0 {
			return f.l.fail("alignment " + strconv.Itoa(a) + " is not a power of 2")
		}
		f.align = a
	default:
		return f.l.argError(1, "invalid format option '"+string([]byte{option})+"'")
	}
	return nil
}

// structArg returns args with a nil for a missing argument n. As in Redis, messages then name nil instead of no value.
func structArg(args []value, n int) []value {
	if n > len(args) {
		return append(append([]value{}, args...), nilValue)
	}
	return args
}

func structPack(l *state, args []value) (int, *raised) {
	f, err := l.newLayout(args)
	if err != nil {
		return 0, err
	}
	var out strings.Builder
	for n := 2; ; {
		option, size, ok, err := f.next()
		if err != nil {
			return 0, err
		}
		if !ok {
			l.alloc(stringBytes)
			return l.one(l.text(out.String()))
		}
		l.formatted(&out, "\x00\x00\x00\x00\x00\x00\x00\x00"[:min(f.padding(out.Len(), option, size), 8)])
		switch option {
		case 'b', 'B', 'h', 'H', 'l', 'L', 'T', 'i', 'I', 'f', 'd':
			x, err := l.checkNumber(structArg(args, n), n)
			if err != nil {
				return 0, err
			}
			n++
			l.formatted(&out, f.encode(option, size, x))
		case 'x':
			l.formatted(&out, "\x00")
		case 'c', 's':
			s, err := l.checkString(structArg(args, n), n)
			if err != nil {
				return 0, err
			}
			n++
			if size == 0 {
				size = len(s)
			}
			if len(s) < size {
				return 0, l.argError(n, "string too short")
			}
			l.formatted(&out, s[:size])
			if option == 's' {
				l.formatted(&out, "\x00")
			}
		default:
			if err := f.control(option); err != nil {
				return 0, err
			}
		}
	}
}

// encode returns the bytes of a number.
func (f *layout) encode(option byte, size int, x float64) string {
	var b [maxIntegerBytes]byte
	switch option {
	case 'f':
		binary.LittleEndian.PutUint32(b[:], math.Float32bits(float32(x)))
	case 'd':
		binary.LittleEndian.PutUint64(b[:], math.Float64bits(x))
	default:
		n := toUint64(x)
		if x < 0 {
			n = uint64(toInt64(x))
		}
		binary.LittleEndian.PutUint64(b[:], n)
	}
	if f.big {
		slices.Reverse(b[:size])
	}
	return string(b[:size])
}

func structUnpack(l *state, args []value) (int, *raised) {
	f, err := l.newLayout(args)
	if err != nil {
		return 0, err
	}
	data, err := l.checkString(args, 2)
	if err != nil {
		return 0, err
	}
	start, err := l.optInt64(args, 3, 1)
	if err != nil {
		return 0, err
	}
	if start == 0 {
		return 0, l.argError(3, "offset must be 1 or greater")
	}
	pos := int(start - 1)
	if start < 0 || start > math.MaxInt32 {
		pos = math.MaxInt32 // beyond the end of all data
	}
	first := l.top
	for {
		option, size, ok, err := f.next()
		if err != nil {
			return 0, err
		}
		if !ok {
			l.needStack(1)
			l.push(number(float64(pos + 1)))
			return l.top - first, nil
		}
		pos += f.padding(pos, option, size)
		if pos+size > len(data) {
			return 0, l.argError(2, "data string too short")
		}
		if l.top-first >= maxResults-8 {
			return 0, l.fail("stack overflow (too many results)")
		}
		l.needStack(2)
		if size, err = f.decode(option, size, data, pos, first); err != nil {
			return 0, err
		}
		pos += size
	}
}

// decode pushes the value of an option at a position, and returns its length in bytes. first is the slot of the first
// result.
func (f *layout) decode(option byte, size int, data string, pos, first int) (int, *raised) {
	l := f.l
	switch option {
	case 'b', 'B', 'h', 'H', 'l', 'L', 'T', 'i', 'I':
		l.push(number(f.integer(data[pos:pos+size], option >= 'a')))
	case 'f':
		l.push(number(float64(math.Float32frombits(uint32(f.unsigned(data[pos : pos+4]))))))
	case 'd':
		l.push(number(math.Float64frombits(f.unsigned(data[pos : pos+8]))))
	case 'x':
	case 'c':
		if size == 0 {
			n, isNumber := l.toNumber(l.stack[l.top-1])
			if l.top == first || !isNumber {
				return 0, l.fail("format 'c0' needs a previous size")
			}
			l.top--
			length := toUint64(n)
			if length > uint64(len(data)-pos) {
				return 0, l.argError(2, "data string too short")
			}
			size = int(length)
		}
		l.push(l.newString(data[pos : pos+size]))
	case 's':
		end := strings.IndexByte(data[pos:], 0)
		l.charge(int64(max(end, 0)) >> 6)
		if end < 0 {
			l.chargeBytes(len(data) - pos)
			return 0, l.fail("unfinished string in data")
		}
		l.push(l.newString(data[pos : pos+end]))
		size = end + 1
	default:
		return size, f.control(option)
	}
	return size, nil
}

// unsigned decodes an integer. The bytes from the ninth on overlap the first ones, as on x86, where a shift is modulo
// 64.
func (f *layout) unsigned(s string) uint64 {
	n := uint64(0)
	for i := range len(s) {
		c := s[i]
		if f.big {
			c = s[len(s)-1-i]
		}
		n |= uint64(c) << (8 * i & 63)
	}
	return n
}

func (f *layout) integer(s string, signed bool) float64 {
	n := f.unsigned(s)
	if !signed {
		return float64(n)
	}
	if s == "" {
		return 0
	}
	mask := ^uint64(0) << ((8*len(s) - 1) & 63)
	if n&mask != 0 {
		n |= mask
	}
	return float64(int64(n))
}

func structSize(l *state, args []value) (int, *raised) {
	f, err := l.newLayout(args)
	if err != nil {
		return 0, err
	}
	pos := 0
	for {
		option, size, ok, err := f.next()
		if err != nil {
			return 0, err
		}
		if !ok {
			return l.one(number(float64(pos)))
		}
		pos += f.padding(pos, option, size)
		switch {
		case option == 's':
			return 0, l.argError(1, "option 's' has no fixed size")
		case option == 'c' && size == 0:
			return 0, l.argError(1, "option 'c0' has no fixed size")
		case !isNamePart(option) || option == '_':
			if err := f.control(option); err != nil {
				return 0, err
			}
		}
		pos += size
	}
}
