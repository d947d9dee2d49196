package protocol

// AppendPieces appends v to dst as [Value.AppendTo] does, and hands dst to full as soon as it holds size
// bytes; full returns what the rest is appended to. dst so never grows beyond size and a few bytes,
// whatever v stands for: a reply of a few kilobytes can name one string thousands of times.
func (v *Value) AppendPieces(dst []byte, resp, size int, full func(dst []byte) []byte) []byte {
	switch v.Kind {
	case KindArray, KindMap, KindSet, KindPush:
		dst = v.appendCount(dst, resp)
		for i := range v.Elems {
			dst = v.Elems[i].AppendPieces(dst, resp, size, full)
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
		dst = append(appendHeader(dst, '=', int64(len(verbatimPrefix)+len(v.Str))), verbatimPrefix...)
	default:
		dst = appendHeader(dst, '$', int64(len(v.Str)))
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
