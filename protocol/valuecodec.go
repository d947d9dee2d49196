package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
)

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
