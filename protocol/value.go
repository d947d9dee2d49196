package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Kind is the kind of a [Value].
type Kind uint8

// The kinds of a reply. Null is the null bulk string of RESP2, and NullArray its null array. In RESP3 both are "_".
const (
	KindNull Kind = iota
	KindNullArray
	KindSimple
	KindError
	KindInteger
	KindBulk
	KindArray
	KindMap
	KindSet
	KindPush
	KindDouble
	KindBool
	KindBigNumber
	KindVerbatim
	// KindNone is no reply (CLIENT REPLY OFF), and has no bytes.
	KindNone
	// KindPairs is an array of pairs in RESP3, and in RESP2 one array of the elements of all pairs.
	KindPairs
)

// The versions of RESP that HELLO negotiates.
const (
	RESP2 = 2
	RESP3 = 3
)

// Value is one reply. The zero value is Null. Values are immutable, and may share strings and elements with the state
// machine.
type Value struct {
	Kind Kind
	// Num is the integer, the bool (0 or 1), or the bits of the double.
	Num int64
	// Str is the text of a simple string, an error, a bulk string, a big number, or a verbatim string (without the prefix
	// "txt:"). An error's text begins with its prefix ("ERR syntax error").
	Str string
	// Elems has the elements of an aggregate. In a map they are key, value, key, value, and likewise in pairs.
	Elems []Value
}

// OK is the reply +OK.
var OK = Simple("OK")

// Null is the null reply ($-1 in RESP2).
var Null = Value{Kind: KindNull}

// NullArray is the null array (*-1 in RESP2).
var NullArray = Value{Kind: KindNullArray}

// None is no reply at all.
var None = Value{Kind: KindNone}

// Simple returns a simple string. s must have no CR or LF.
func Simple(s string) Value { return Value{Kind: KindSimple, Str: s} }

// Bulk returns a bulk string.
func Bulk(s string) Value { return Value{Kind: KindBulk, Str: s} }

// Integer returns a 64-bit integer.
func Integer(n int64) Value { return Value{Kind: KindInteger, Num: n} }

// Array returns an array of elems.
func Array(elems ...Value) Value { return Value{Kind: KindArray, Elems: elems} }

// Map returns a map. elems are key, value, key, value, in the order of the reply.
func Map(elems ...Value) Value { return Value{Kind: KindMap, Elems: elems} }

// Fields returns a map of named fields. words are name, value, name, value.
func Fields(words ...any) Value {
	elems := make([]Value, len(words))
	for i, w := range words {
		if name, ok := w.(string); ok {
			elems[i] = Bulk(name)
			continue
		}
		elems[i] = w.(Value)
	}
	return Map(elems...)
}

// Pairs returns an array of pairs, which is flat in RESP2. elems are first, second, first, second.
func Pairs(elems ...Value) Value { return Value{Kind: KindPairs, Elems: elems} }

// Set returns an unordered collection, which is an array in RESP2.
func Set(elems ...Value) Value { return Value{Kind: KindSet, Elems: elems} }

// Push returns an out-of-band message, which is an array in RESP2.
func Push(elems ...Value) Value { return Value{Kind: KindPush, Elems: elems} }

// Verbatim returns a verbatim string of format txt, which is a bulk string in RESP2.
func Verbatim(s string) Value { return Value{Kind: KindVerbatim, Str: s} }

// BigNumber returns an integer of any size in decimal, which is a bulk string in RESP2.
func BigNumber(s string) Value { return Value{Kind: KindBigNumber, Str: s} }

// Double returns a floating-point number, which is a bulk string in RESP2.
func Double(f float64) Value { return Value{Kind: KindDouble, Num: int64(math.Float64bits(f))} }

// Bool returns a boolean, which is the integer 1 or 0 in RESP2.
func Bool(b bool) Value {
	if b {
		return Value{Kind: KindBool, Num: 1}
	}
	return Value{Kind: KindBool}
}

// Strings returns an array of bulk strings.
func Strings(ss ...string) Value {
	elems := make([]Value, len(ss))
	for i, s := range ss {
		elems[i] = Bulk(s)
	}
	return Value{Kind: KindArray, Elems: elems}
}

// Float returns the number of a double.
func (v Value) Float() float64 { return math.Float64frombits(uint64(v.Num)) }

// IsError reports whether v is an error reply.
func (v Value) IsError() bool { return v.Kind == KindError }

// IsNull reports whether v is one of the two nulls.
func (v Value) IsNull() bool { return v.Kind == KindNull || v.Kind == KindNullArray }

// SizeWithin returns an upper bound, and a close one, of the size of v in both versions of RESP and in the form of
// [AppendValue]. If the size exceeds limit, it stops counting, and ok is false: elements that share memory make a reply
// far larger than its memory, and to look at each would take as long as encoding it.
func (v *Value) SizeWithin(limit int) (size int, ok bool) {
	left := limit
	ok = v.charge(&left)
	return limit - left, ok
}

// SizesWithin returns the sum of the sizes of vs: see [Value.SizeWithin].
func SizesWithin(vs []Value, limit int) (size int, ok bool) {
	left := limit
	ok = charge(vs, &left)
	return limit - left, ok
}

// MemoryWithin returns an upper bound of the memory of vs, as if no elements shared memory. For small elements that is
// many times their size. It stops counting once the memory exceeds limit.
func MemoryWithin(vs []Value, limit int) (memory int) {
	for i := range vs {
		if memory += valueBytes + len(vs[i].Str); memory > limit {
			break
		}
		if elems := vs[i].Elems; len(elems) > 0 {
			memory += MemoryWithin(elems, limit-memory)
		}
	}
	return memory
}

// charge subtracts the size of v from left, and reports whether it sufficed.
func (v *Value) charge(left *int) bool {
	switch v.Kind {
	case KindInteger, KindBool:
		*left -= 3 + digits(v.Num)
	case KindDouble:
		*left -= maxDouble
	case KindArray, KindMap, KindSet, KindPush:
		*left -= 3 + digits(int64(len(v.Elems)))
		return charge(v.Elems, left)
	case KindPairs:
		*left -= 3 + digits(int64(len(v.Elems))) + len(v.Elems)/2*len(pairHead)
		return charge(v.Elems, left)
	case KindNull, KindNullArray, KindNone:
		*left -= len("$-1\r\n")
	case KindVerbatim:
		*left -= len("=\r\ntxt:\r\n") + digits(int64(len(v.Str))) + len(v.Str)
	default:
		*left -= len("$\r\n\r\n") + digits(int64(len(v.Str))) + len(v.Str)
	}
	return *left >= 0
}

func charge(vs []Value, left *int) bool {
	for i := range vs {
		if !vs[i].charge(left) {
			return false
		}
	}
	return *left >= 0
}

// maxDouble is the length of the longest double: a bulk string of 24 characters.
const maxDouble = len("$24\r\n-2.2250738585072014e-308\r\n")

// digits returns the number of characters of n in decimal.
func digits(n int64) (count int) {
	if n < 0 {
		count++
	}
	for count++; n > 9 || n < -9; count++ {
		n /= 10
	}
	return count
}

// The value codec carries replies between nodes: a kind byte, then
//
//	simple, error, bulk, big number, verbatim   bytes
//	integer, double, bool                       varint (a double's are its bits)
//	array, map, set, push, pairs                  uvarint count, then the elements
//	null, null array, none                      nothing
//
// RESP would not do: most kinds have two forms there, and RESP2 gives different kinds the same form.

// ErrCorruptValue is the error for bytes that are not a value.
var ErrCorruptValue = errors.New("corrupt value")

// maxValueDepth bounds the recursion of [DecodeValue]. No reply of this release is nearly as deep.
const maxValueDepth = 1024

// AppendValue appends v in the form of [DecodeValue].
func AppendValue(dst []byte, v Value) []byte {
	dst = append(dst, byte(v.Kind))
	switch v.Kind {
	case KindSimple, KindError, KindBulk, KindBigNumber, KindVerbatim:
		return appendString(dst, v.Str)
	case KindInteger, KindDouble, KindBool:
		return binary.AppendVarint(dst, v.Num)
	case KindArray, KindMap, KindSet, KindPush, KindPairs:
		dst = binary.AppendUvarint(dst, uint64(len(v.Elems)))
		for _, e := range v.Elems {
			dst = AppendValue(dst, e)
		}
	}
	return dst
}

// ValueEncoder encodes values as [AppendValue] does, in parts. The remaining parts need no memory beyond the values.
type ValueEncoder struct {
	levels [][]Value // the remaining values on each level of nesting
	text   string    // the rest of a string
}

// NewValueEncoder returns an encoder of vs, one after the other.
func NewValueEncoder(vs []Value) *ValueEncoder { return &ValueEncoder{levels: [][]Value{vs}} }

// Append appends the next bytes, until dst has grown by about limit. done reports that all bytes were appended.
func (e *ValueEncoder) Append(dst []byte, limit int) (_ []byte, done bool) {
	for end := len(dst) + limit; len(dst) < end; {
		if n := min(len(e.text), end-len(dst)); n > 0 {
			dst, e.text = append(dst, e.text[:n]...), e.text[n:]
			continue
		}
		if len(e.levels) == 0 {
			break
		}
		level := &e.levels[len(e.levels)-1]
		if len(*level) == 0 {
			e.levels = e.levels[:len(e.levels)-1]
			continue
		}
		v := &(*level)[0]
		*level = (*level)[1:]
		switch v.Kind {
		case KindSimple, KindError, KindBulk, KindBigNumber, KindVerbatim:
			dst = binary.AppendUvarint(append(dst, byte(v.Kind)), uint64(len(v.Str)))
			e.text = v.Str
		case KindArray, KindMap, KindSet, KindPush, KindPairs:
			dst = binary.AppendUvarint(append(dst, byte(v.Kind)), uint64(len(v.Elems)))
			e.levels = append(e.levels, v.Elems)
		default:
			dst = AppendValue(dst, *v)
		}
	}
	return dst, e.text == "" && len(e.levels) == 0
}

// DecodeValue decodes the first value of s, and returns the rest. The value's strings share memory with s.
func DecodeValue(s string) (v Value, rest string, err error) { return decodeValue(s, maxValueDepth) }

func decodeValue(s string, depth int) (v Value, rest string, err error) {
	if s == "" || depth == 0 {
		return v, "", fmt.Errorf("%w: it ends early or nests too deep", ErrCorruptValue)
	}
	v.Kind, s = Kind(s[0]), s[1:]
	ok := true
	switch v.Kind {
	case KindNull, KindNullArray, KindNone:
	case KindSimple, KindError, KindBulk, KindBigNumber, KindVerbatim:
		v.Str, s, ok = str(s)
	case KindInteger, KindDouble, KindBool:
		v.Num, s, ok = varint(s)
	case KindArray, KindMap, KindSet, KindPush, KindPairs:
		var n uint64
		// Every element has at least a kind byte. Few elements are allocated before they arrive.
		if n, s, ok = uvarint(s); !ok || n > uint64(len(s)) {
			return v, "", fmt.Errorf("%w: count", ErrCorruptValue)
		}
		v.Elems = make([]Value, 0, min(n, 64))
		for range n {
			var e Value
			if e, s, err = decodeValue(s, depth-1); err != nil {
				return v, "", err
			}
			v.Elems = append(v.Elems, e)
		}
	default:
		return v, "", fmt.Errorf("%w: kind %d", ErrCorruptValue, v.Kind)
	}
	if !ok {
		return v, "", fmt.Errorf("%w: kind %d", ErrCorruptValue, v.Kind)
	}
	return v, s, nil
}
