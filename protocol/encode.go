package protocol

import (
	"strconv"

	"github.com/tidwall/redcon"
)

// Only this file encodes replies. redcon's Append functions write RESP2. The functions here write the types of RESP3,
// and text that is written in pieces.

// AppendTo appends the bytes of v as RESP version resp (2 or 3).
func (v Value) AppendTo(dst []byte, resp int) []byte {
	switch v.Kind {
	case KindNone:
		return dst
	case KindNull, KindNullArray:
		return v.appendNull(dst, resp)
	case KindSimple:
		return redcon.AppendString(dst, v.Str)
	case KindError:
		return redcon.AppendError(dst, v.Str)
	case KindInteger:
		return redcon.AppendInt(dst, v.Num)
	case KindBulk:
		return redcon.AppendBulkString(dst, v.Str)
	case KindArray, KindMap, KindSet, KindPush, KindPairs:
		dst = v.appendHead(dst, resp)
		for i := range v.Elems {
			dst = v.Elems[i].AppendTo(v.appendPairHead(dst, resp, i), resp)
		}
		return dst
	}
	if resp >= RESP3 {
		return v.appendRESP3(dst)
	}
	switch v.Kind {
	case KindBool:
		return redcon.AppendInt(dst, v.Num)
	case KindDouble:
		return redcon.AppendBulkString(dst, FormatDouble(v.Float()))
	default:
		return redcon.AppendBulkString(dst, v.Str)
	}
}

func (v *Value) appendNull(dst []byte, resp int) []byte {
	switch {
	case resp >= RESP3:
		return append(dst, "_\r\n"...)
	case v.Kind == KindNullArray:
		return AppendArrayHead(dst, -1)
	default:
		return redcon.AppendNull(dst)
	}
}

// AppendArrayHead appends the head of an array of n elements, which the caller appends. -1 is the null array of RESP2.
func AppendArrayHead(dst []byte, n int) []byte { return redcon.AppendArray(dst, n) }

// appendHead appends the head of an aggregate.
func (v *Value) appendHead(dst []byte, resp int) []byte {
	n := len(v.Elems)
	switch {
	case resp < RESP3 || v.Kind == KindArray:
		return AppendArrayHead(dst, n)
	case v.Kind == KindPairs:
		return AppendArrayHead(dst, n/2)
	case v.Kind == KindMap:
		return appendHead(dst, '%', n/2)
	case v.Kind == KindSet:
		return appendHead(dst, '~', n)
	default:
		return appendHead(dst, '>', n)
	}
}

// pairHead is the head of a pair.
const pairHead = "*2\r\n"

// appendPairHead appends the head of a pair if one begins with element i.
func (v *Value) appendPairHead(dst []byte, resp, i int) []byte {
	if v.Kind == KindPairs && resp >= RESP3 && i%2 == 0 {
		return append(dst, pairHead...)
	}
	return dst
}

// appendRESP3 appends a scalar of a type that only RESP3 has.
func (v *Value) appendRESP3(dst []byte) []byte {
	switch v.Kind {
	case KindBool:
		if v.Num != 0 {
			return append(dst, "#t\r\n"...)
		}
		return append(dst, "#f\r\n"...)
	case KindDouble:
		dst = append(dst, ',')
		dst = append(dst, FormatDouble(v.Float())...)
		return append(dst, '\r', '\n')
	case KindBigNumber:
		dst = append(dst, '(')
		from := len(dst)
		dst = append(dst, v.Str...)
		blankLineEnds(dst[from:])
		return append(dst, '\r', '\n')
	default:
		dst = appendHead(dst, '=', len(verbatimPrefix)+len(v.Str))
		dst = append(dst, verbatimPrefix...)
		dst = append(dst, v.Str...)
		return append(dst, '\r', '\n')
	}
}

// verbatimPrefix is the format of every verbatim string.
const verbatimPrefix = "txt:"

// AppendPieces appends v to dst as [Value.AppendTo] does, and passes dst to full as soon as it has size bytes; the rest
// is appended to the result of full. So dst hardly exceeds size, however large the reply: a value of a few kilobytes
// can have the same string thousands of times.
func (v *Value) AppendPieces(dst []byte, resp, size int, full func(dst []byte) []byte) []byte {
	switch v.Kind {
	case KindArray, KindMap, KindSet, KindPush, KindPairs:
		dst = v.appendHead(dst, resp)
		for i := range v.Elems {
			dst = v.Elems[i].AppendPieces(v.appendPairHead(dst, resp, i), resp, size, full)
		}
	default:
		if v.Str != "" && len(dst)+len(v.Str) > size {
			dst = v.appendText(dst, resp, size, full)
		} else {
			dst = v.AppendTo(dst, resp)
		}
	}
	if len(dst) >= size {
		dst = full(dst)
	}
	return dst
}

// appendText appends a scalar whose text does not fit.
func (v *Value) appendText(dst []byte, resp, size int, full func(dst []byte) []byte) []byte {
	line := false
	switch {
	case v.Kind == KindSimple:
		dst, line = append(dst, '+'), true
	case v.Kind == KindError:
		dst, line = append(dst, '-'), true
	case v.Kind == KindBigNumber && resp >= RESP3:
		dst, line = append(dst, '('), true
	case v.Kind == KindVerbatim && resp >= RESP3:
		dst = append(appendHead(dst, '=', len(verbatimPrefix)+len(v.Str)), verbatimPrefix...)
	default:
		dst = appendHead(dst, '$', len(v.Str))
	}
	for rest := v.Str; ; {
		from, n := len(dst), min(len(rest), max(0, size-len(dst)))
		dst = append(dst, rest[:n]...)
		if line {
			blankLineEnds(dst[from:])
		}
		if rest = rest[n:]; rest == "" {
			return append(dst, '\r', '\n')
		}
		dst = full(dst)
	}
}

// appendHead appends the head of a type of RESP3, or of a text in pieces. redcon has no functions for these.
func appendHead(dst []byte, mark byte, n int) []byte {
	dst = append(dst, mark)
	dst = strconv.AppendInt(dst, int64(n), 10)
	return append(dst, '\r', '\n')
}

// blankLineEnds replaces line ends by blanks, as redcon.AppendError does. Scripts and errors of libraries make up
// texts, and a line end would end the reply and begin a forged one.
func blankLineEnds(line []byte) {
	for i, b := range line {
		if b == '\r' || b == '\n' {
			line[i] = ' '
		}
	}
}
