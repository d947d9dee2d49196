package lua

import (
	"math"
	"strconv"
)

// jsonEncoder writes one value.
type jsonEncoder struct {
	l   *state
	c   *jsonConfig
	out []byte
	// charged is the part of out that has been charged, and taken the charge.
	charged int
	taken   int64
}

func jsonEncode(l *state, c *jsonConfig, args []value) (int, *raised) {
	if len(args) != 1 {
		return 0, l.argError(1, "expected 1 argument")
	}
	e := jsonEncoder{l: l, c: c}
	if err := e.encode(args[0], 0); err != nil {
		return 0, err
	}
	e.chargeWritten()
	text := l.stringOf(e.out)
	l.release(e.taken)
	return l.one(text)
}

// chargeWritten charges for the bytes written since; twice, as the buffer grows by doubling.
func (e *jsonEncoder) chargeWritten() {
	n := len(e.out) - e.charged
	e.l.alloc(2 * int64(n))
	e.taken += 2 * int64(n)
	e.l.charge(int64(n)>>3 + 1)
	e.charged = len(e.out)
}

func (e *jsonEncoder) fail(what, reason string) *raised {
	return e.l.fail("Cannot serialise " + what + ": " + reason)
}

func (e *jsonEncoder) encode(v value, depth int) *raised {
	switch x := v.o.(type) {
	case nil:
		e.out = append(e.out, "null"...)
	case trueTag:
		e.out = append(e.out, "true"...)
	case falseTag:
		e.out = append(e.out, "false"...)
	case numberTag:
		return e.number(v.n)
	case *str:
		e.text(x.s)
	case *table:
		return e.table(x, depth+1)
	case *userdata:
		e.out = append(e.out, "null"...)
	default:
		return e.fail(v.typeName(), "type not supported")
	}
	return nil
}

func (e *jsonEncoder) number(n float64) *raised {
	e.l.charge(1)
	if _, special := appendNonFinite(nil, n); special {
		switch e.c.encodeInvalid {
		case 0:
			return e.fail("number", "must not be NaN or Inf")
		case 2:
			e.out = append(e.out, "null"...)
			return nil
		}
		e.out, _ = appendNonFinite(e.out, math.Copysign(n, sign(n)))
		return nil
	}
	e.out = appendG(e.out, n, e.c.precision)
	return nil
}

// sign is 1 for NaN, which is written without a sign.
func sign(n float64) float64 {
	if n < 0 {
		return -1
	}
	return 1
}

// text writes a string in quotes.
func (e *jsonEncoder) text(s string) {
	const hex = "0123456789abcdef"
	// The charge comes before the bytes exist: a control character takes six.
	e.l.chargeBytes(len(s))
	e.chargeWritten()
	e.l.alloc(int64(len(s)))
	e.taken += int64(len(s))
	e.out = append(e.out, '"')
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '"' || c == '\\' || c == '/':
			e.out = append(e.out, '\\', c)
			if i&1023 == 0 && !e.l.env.Legacy {
				e.chargeWritten()
			}
		case c >= 32 && c != 127:
			e.out = append(e.out, c)
		case c >= '\b' && c <= '\r' && c != '\v':
			e.out = append(e.out, '\\', "btn fr"[c-'\b'])
		default:
			e.out = append(e.out, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			if i&1023 == 0 {
				e.chargeWritten()
			}
		}
	}
	e.out = append(e.out, '"')
}

func (e *jsonEncoder) table(t *table, depth int) *raised {
	if depth > min(e.c.encodeDepth, jsonStackDepth) {
		return e.l.fail("Cannot serialise, excessive nesting (" + strconv.Itoa(depth) + ")")
	}
	e.chargeWritten()
	n, err := e.arrayLength(t)
	if err != nil {
		return err
	}
	if n > 0 {
		return e.array(t, n, depth)
	}
	return e.object(t, depth)
}

// arrayLength returns the length of a table that is an array, or -1. A nearly empty array is an object,
// or refused.
func (e *jsonEncoder) arrayLength(t *table) (int, *raised) {
	largest, items := 0, 0
	for key := nilValue; ; {
		k, _, _ := t.next(e.l, key)
		if k.isNil() {
			break
		}
		e.l.charge(1)
		n, isNumber := k.float()
		if !isNumber || n < 1 || n != math.Floor(n) {
			return -1, nil
		}
		largest = max(largest, toInt32(n))
		items++
		key = k
	}
	if e.c.sparseRatio > 0 && largest > items*e.c.sparseRatio && largest > e.c.sparseSafe {
		if !e.c.sparseConvert {
			return 0, e.fail("table", "excessively sparse array")
		}
		return -1, nil
	}
	return largest, nil
}

func (e *jsonEncoder) array(t *table, n, depth int) *raised {
	e.out = append(e.out, '[')
	for i := 1; i <= n; i++ {
		if i > 1 {
			e.out = append(e.out, ',')
		}
		if i&63 == 0 {
			e.chargeWritten()
		}
		e.l.charge(1)
		if err := e.encode(t.getInt(e.l, i), depth); err != nil {
			return err
		}
	}
	e.out = append(e.out, ']')
	return nil
}

func (e *jsonEncoder) object(t *table, depth int) *raised {
	e.out = append(e.out, '{')
	for key, first := nilValue, true; ; first = false {
		k, v, _ := t.next(e.l, key)
		if k.isNil() {
			break
		}
		if !first {
			e.out = append(e.out, ',')
		}
		e.l.charge(1)
		switch x := k.o.(type) {
		case numberTag:
			e.out = append(e.out, '"')
			if err := e.number(k.n); err != nil {
				return err
			}
			e.out = append(e.out, '"')
		case *str:
			e.text(x.s)
		default:
			return e.fail(k.typeName(), "table key must be a number or string")
		}
		e.out = append(e.out, ':')
		if err := e.encode(v, depth); err != nil {
			return err
		}
		key = k
	}
	e.out = append(e.out, '}')
	return nil
}
