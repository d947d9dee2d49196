package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Kind says what a [Value] is.
type Kind uint8

// The kinds of a reply. Null is RESP2's null bulk string, NullArray its null
// array; in RESP3 both are "_".
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
	// KindNone is the absence of a reply (CLIENT REPLY OFF): no bytes at all.
	KindNone
	// KindPairs is an array of pairs in RESP3, and in RESP2 one array of what the pairs hold.
	KindPairs
)

// RESP protocol versions, as HELLO negotiates them.
const (
	RESP2 = 2
	RESP3 = 3
)

// Value is one reply. Its zero value is Null. Values are immutable once built,
// and may share strings and elements with the state machine.
type Value struct {
	Kind Kind
	// Num is the integer, the bool (0 or 1), or the bits of the double.
	Num int64
	// Str is the text of simple strings, errors, bulk strings, big numbers and
	// verbatim strings (without the "txt:" prefix). An error's text starts with its prefix
	// ("ERR syntax error").
	Str string
	// Elems are the elements of an aggregate. The elements of a map are key, value, key, value, and
	// likewise of pairs.
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

// Simple is a simple string; s holds no CR or LF.
func Simple(s string) Value { return Value{Kind: KindSimple, Str: s} }

// Bulk is a bulk string.
func Bulk(s string) Value { return Value{Kind: KindBulk, Str: s} }

// Integer is a 64 bit integer.
func Integer(n int64) Value { return Value{Kind: KindInteger, Num: n} }

// Array is an array of elems.
func Array(elems ...Value) Value { return Value{Kind: KindArray, Elems: elems} }

// Map is a map; elems are key, value, key, value, in the order they are sent.
func Map(elems ...Value) Value { return Value{Kind: KindMap, Elems: elems} }

// Fields is a map of named fields: a name and its value take turns.
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

// Pairs is an array of pairs, which are flat in RESP2; elems are first, second, first, second.
func Pairs(elems ...Value) Value { return Value{Kind: KindPairs, Elems: elems} }

// Set is an unordered collection, an array in RESP2.
func Set(elems ...Value) Value { return Value{Kind: KindSet, Elems: elems} }

// Push is an out-of-band message, an array in RESP2.
func Push(elems ...Value) Value { return Value{Kind: KindPush, Elems: elems} }

// Verbatim is a verbatim string of format txt, a bulk string in RESP2.
func Verbatim(s string) Value { return Value{Kind: KindVerbatim, Str: s} }

// BigNumber is an arbitrary precision integer in decimal, a bulk string in RESP2.
func BigNumber(s string) Value { return Value{Kind: KindBigNumber, Str: s} }

// Double is a floating point number, a bulk string in RESP2.
func Double(f float64) Value { return Value{Kind: KindDouble, Num: int64(math.Float64bits(f))} }

// Bool is a boolean, the integer 1 or 0 in RESP2.
func Bool(b bool) Value {
	if b {
		return Value{Kind: KindBool, Num: 1}
	}
	return Value{Kind: KindBool}
}

// Strings is an array of bulk strings.
func Strings(ss ...string) Value {
	elems := make([]Value, len(ss))
	for i, s := range ss {
		elems[i] = Bulk(s)
	}
	return Value{Kind: KindArray, Elems: elems}
}

// Float is the number of a double.
func (v Value) Float() float64 { return math.Float64frombits(uint64(v.Num)) }

// IsError reports whether v is an error reply.
func (v Value) IsError() bool { return v.Kind == KindError }

// IsNull reports whether v is one of the two nulls.
func (v Value) IsNull() bool { return v.Kind == KindNull || v.Kind == KindNullArray }

// SizeWithin bounds the bytes that v takes in RESP of either version and in the form of [AppendValue]: closely,
// and never from below. It gives up, with ok false, once they are more than limit: elements that share
// memory make a reply far larger than what holds it, and looking at each would take as long as encoding it.
func (v *Value) SizeWithin(limit int) (size int, ok bool) {
	left := limit
	ok = v.charge(&left)
	return limit - left, ok
}

// SizesWithin is the sum of the sizes of vs, as [Value.SizeWithin] counts them.
func SizesWithin(vs []Value, limit int) (size int, ok bool) {
	left := limit
	ok = charge(vs, &left)
	return limit - left, ok
}

// MemoryWithin bounds the memory that vs take, as if no element shared memory with another. Of small elements
// that is many times the size. Counting stops once the memory is more than limit.
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

// charge takes the size of v from left, and reports whether it was there.
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

// maxDouble is the longest form of a double: a bulk string of 24 characters.
const maxDouble = len("$24\r\n-2.2250738585072014e-308\r\n")

// digits returns how many characters n takes in decimal.
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

// ErrCorruptValue is returned for bytes that are not a value.
var ErrCorruptValue = errors.New("corrupt value")

// maxValueDepth bounds the recursion of [DecodeValue], far above the depth of any reply of this release.
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

// ValueEncoder makes the bytes of values, as [AppendValue] does, a part at a time. The parts to come take
// no memory beside the values.
type ValueEncoder struct {
	levels [][]Value // what is left on each level of nesting
	text   string    // what is left of a string
}

// NewValueEncoder returns an encoder of vs, one after the other.
func NewValueEncoder(vs []Value) *ValueEncoder { return &ValueEncoder{levels: [][]Value{vs}} }

// Append appends the next bytes, until dst has grown by limit or a few bytes more. It returns true when
// everything is there.
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

// DecodeValue reads the first value of s and returns the rest. The value's
// strings share memory with s.
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
		// Every element takes at least a kind byte. Elements that are not there yet get little room.
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
