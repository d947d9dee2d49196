package protocol

import (
	"math"
	"strconv"
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
	// Elems are the elements of an aggregate; a map's are key, value, key, value.
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

// Set is an unordered collection, an array in RESP2.
func Set(elems ...Value) Value { return Value{Kind: KindSet, Elems: elems} }

// Push is an out-of-band message, an array in RESP2.
func Push(elems ...Value) Value { return Value{Kind: KindPush, Elems: elems} }

// Verbatim is a verbatim string of format txt, a bulk string in RESP2.
func Verbatim(s string) Value { return Value{Kind: KindVerbatim, Str: s} }

// BigNumber is an arbitrary precision integer in decimal, a bulk string in RESP2.
func BigNumber(s string) Value { return Value{Kind: KindBigNumber, Str: s} }

// Double is a floating point number, a bulk string in RESP2.
func Double(f float64) Value {
	return Value{Kind: KindDouble, Num: int64(math.Float64bits(f))}
}

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

// AppendTo appends the bytes of v as RESP version resp (2 or 3).
func (v Value) AppendTo(dst []byte, resp int) []byte {
	switch v.Kind {
	case KindNone:
		return dst
	case KindNull:
		if resp >= RESP3 {
			return append(dst, "_\r\n"...)
		}
		return append(dst, "$-1\r\n"...)
	case KindNullArray:
		if resp >= RESP3 {
			return append(dst, "_\r\n"...)
		}
		return append(dst, "*-1\r\n"...)
	case KindSimple:
		return appendLine(dst, '+', v.Str)
	case KindError:
		return appendLine(dst, '-', v.Str)
	case KindInteger:
		return appendHeader(dst, ':', v.Num)
	case KindBulk:
		return appendBulk(dst, '$', "", v.Str)
	case KindArray, KindMap, KindSet, KindPush:
		return v.appendAggregate(dst, resp)
	default:
		return v.appendScalar3(dst, resp)
	}
}

// appendScalar3 appends the scalars that only RESP3 has.
func (v Value) appendScalar3(dst []byte, resp int) []byte {
	switch {
	case v.Kind == KindBool && resp >= RESP3:
		if v.Num != 0 {
			return append(dst, "#t\r\n"...)
		}
		return append(dst, "#f\r\n"...)
	case v.Kind == KindBool:
		return appendHeader(dst, ':', v.Num)
	case v.Kind == KindDouble && resp >= RESP3:
		dst = append(dst, ',')
		dst = append(dst, FormatDouble(v.Float())...)
		return append(dst, '\r', '\n')
	case v.Kind == KindDouble:
		return appendBulk(dst, '$', "", FormatDouble(v.Float()))
	case v.Kind == KindBigNumber && resp >= RESP3:
		return appendLine(dst, '(', v.Str)
	case v.Kind == KindVerbatim && resp >= RESP3:
		return appendBulk(dst, '=', verbatimPrefix, v.Str)
	default:
		return appendBulk(dst, '$', "", v.Str)
	}
}

func (v Value) appendAggregate(dst []byte, resp int) []byte {
	dst = v.appendCount(dst, resp)
	for _, e := range v.Elems {
		dst = e.AppendTo(dst, resp)
	}
	return dst
}

// appendCount appends the head of an aggregate.
func (v *Value) appendCount(dst []byte, resp int) []byte {
	n := int64(len(v.Elems))
	switch {
	case resp < RESP3:
		return appendHeader(dst, '*', n)
	case v.Kind == KindMap:
		return appendHeader(dst, '%', n/2)
	case v.Kind == KindSet:
		return appendHeader(dst, '~', n)
	case v.Kind == KindPush:
		return appendHeader(dst, '>', n)
	}
	return appendHeader(dst, '*', n)
}

// FormatDouble writes f as Redis does in RESP3 (%.17g, "inf", "-inf", "nan").
func FormatDouble(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	if f == math.Trunc(f) && math.Abs(f) < 1e17 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return FormatG(f, 17)
}

// appendLine writes a line end in s, which would end the reply and begin a forged
// one, as a blank: scripts and errors of libraries make up texts.
func appendLine(dst []byte, mark byte, s string) []byte {
	dst = append(dst, mark)
	from := len(dst)
	dst = append(dst, s...)
	blankLineEnds(dst[from:])
	return append(dst, '\r', '\n')
}

func blankLineEnds(line []byte) {
	for i, b := range line {
		if b == '\r' || b == '\n' {
			line[i] = ' '
		}
	}
}

// verbatimPrefix is the format of every verbatim string.
const verbatimPrefix = "txt:"

func appendHeader(dst []byte, mark byte, n int64) []byte {
	dst = append(dst, mark)
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, '\r', '\n')
}

func appendBulk(dst []byte, mark byte, prefix, s string) []byte {
	dst = appendHeader(dst, mark, int64(len(prefix)+len(s)))
	dst = append(dst, prefix...)
	dst = append(dst, s...)
	return append(dst, '\r', '\n')
}
