package lua

import (
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

var (
	fieldOK        = newConstant("ok")
	fieldDouble    = newConstant("double")
	fieldBigNumber = newConstant("big_number")
	fieldVerbatim  = newConstant("verbatim_string")
	fieldFormat    = newConstant("format")
	fieldString    = newConstant("string")
	fieldMap       = newConstant("map")
	fieldSet       = newConstant("set")
	fieldIgnore    = newConstant("ignore_error_stats_update")
)

// maxReplyDepth limits the nesting of a reply, about as Lua's stack does in Redis.
const maxReplyDepth = 2600

// single returns a table with one field.
func (l *state) single(field *str, v value) value {
	t := l.newTable(0, 1)
	t.set(l, value{o: field}, v)
	return value{o: t}
}

// fromReply converts a reply of the host to a Lua value. Unless the script chose RESP3, types of RESP3 are first
// replaced by those that RESP2 sends instead.
func (l *state) fromReply(v protocol.Value, depth int) (value, *raised) {
	if depth > maxReplyDepth {
		return nilValue, l.redisError("reached lua stack limit")
	}
	switch v.Kind {
	case protocol.KindInteger:
		return number(float64(v.Num)), nil
	case protocol.KindBulk:
		return l.newString(v.Str), nil
	case protocol.KindNull, protocol.KindNullArray:
		if l.resp == protocol.RESP3 {
			return nilValue, nil
		}
		return falseValue, nil
	case protocol.KindSimple:
		return l.single(fieldOK, l.newString(v.Str)), nil
	case protocol.KindError:
		t := l.newTable(0, 2)
		t.set(l, value{o: fieldErr}, l.newString(v.Str))
		t.set(l, value{o: fieldIgnore}, trueValue)
		return value{o: t}, nil
	case protocol.KindArray, protocol.KindPush:
		return l.fromArray(v.Elems, depth)
	}
	if l.resp == protocol.RESP3 {
		return l.fromReply3(v, depth)
	}
	switch v.Kind {
	case protocol.KindMap, protocol.KindSet, protocol.KindPairs:
		return l.fromArray(v.Elems, depth)
	case protocol.KindDouble:
		return l.newString(protocol.FormatDouble(v.Float())), nil
	case protocol.KindBool:
		return number(float64(v.Num)), nil
	default:
		return l.newString(v.Str), nil
	}
}

func (l *state) fromReply3(v protocol.Value, depth int) (value, *raised) {
	switch v.Kind {
	case protocol.KindBool:
		return boolean(v.Num != 0), nil
	case protocol.KindDouble:
		return l.single(fieldDouble, number(v.Float())), nil
	case protocol.KindBigNumber:
		return l.single(fieldBigNumber, l.newString(v.Str)), nil
	case protocol.KindVerbatim:
		t := l.newTable(0, 2)
		t.set(l, value{o: fieldString}, l.newString(v.Str))
		t.set(l, value{o: fieldFormat}, constant("txt"))
		return l.single(fieldVerbatim, value{o: t}), nil
	case protocol.KindMap, protocol.KindSet:
		return l.fromEntries(v, depth)
	case protocol.KindPairs:
		return l.fromPairs(v.Elems, depth)
	default:
		return nilValue, nil
	}
}

func (l *state) fromArray(elems []protocol.Value, depth int) (value, *raised) {
	l.charge(int64(len(elems)) / 2)
	t := l.newTable(0, 0)
	for i := range elems {
		v, err := l.fromReply(elems[i], depth+1)
		if err != nil {
			return nilValue, err
		}
		t.setInt(l, i+1, v)
	}
	return value{o: t}, nil
}

// fromPairs returns an array with an array for each pair.
func (l *state) fromPairs(elems []protocol.Value, depth int) (value, *raised) {
	l.charge(int64(len(elems)) / 2)
	t := l.newTable(0, 0)
	for i := 0; i+1 < len(elems); i += 2 {
		v, err := l.fromArray(elems[i:i+2], depth+1)
		if err != nil {
			return nilValue, err
		}
		t.setInt(l, i/2+1, v)
	}
	return value{o: t}, nil
}

// fromEntries returns {map={…}} or {set={…}}.
func (l *state) fromEntries(v protocol.Value, depth int) (value, *raised) {
	field, step := fieldSet, 1
	if v.Kind == protocol.KindMap {
		field, step = fieldMap, 2
	}
	l.charge(int64(len(v.Elems)) / 2)
	inner := l.newTable(0, 0)
	for i := 0; i+step <= len(v.Elems); i += step {
		key, err := l.fromReply(v.Elems[i], depth+1)
		if err != nil {
			return nilValue, err
		}
		val := trueValue
		if step == 2 {
			if val, err = l.fromReply(v.Elems[i+1], depth+1); err != nil {
				return nilValue, err
			}
		}
		if err := l.checkKey(key); err != nil {
			return nilValue, err
		}
		inner.set(l, key, val)
	}
	return l.single(field, value{o: inner}), nil
}

// oneLine replaces line breaks, since they would end the line of the reply.
func oneLine(s string) string {
	if strings.IndexByte(s, '\r') < 0 && strings.IndexByte(s, '\n') < 0 {
		return s
	}
	return strings.NewReplacer("\r", " ", "\n", " ").Replace(s)
}

// toReply converts the result of a script to a reply.
func (l *state) toReply(v value, depth int) protocol.Value {
	l.charge(1)
	switch x := v.o.(type) {
	case *str:
		l.chargeReply(len(x.s))
		return protocol.Bulk(x.s)
	case numberTag:
		return protocol.Integer(toInt64(v.n))
	case trueTag:
		if l.resp == protocol.RESP3 {
			return protocol.Bool(true)
		}
		return protocol.Integer(1)
	case falseTag:
		if l.resp == protocol.RESP3 {
			return protocol.Bool(false)
		}
		return protocol.Null
	case *table:
		if depth >= maxReplyDepth {
			return protocol.Err("reached lua stack limit")
		}
		return l.tableReply(x, depth)
	default:
		return protocol.Null
	}
}

// textField returns a field that is a string. It returns false for other types, even for numbers.
func (l *state) textField(t *table, field *str) (string, bool) {
	s, is := t.getStr(l, field).str()
	if !is {
		return "", false
	}
	l.chargeReply(len(s.s))
	return s.s, true
}

// tableReply converts a table to a reply. A field such as "err" or "map" selects the kind of the reply. Without such a
// field the reply is the array up to the first nil.
func (l *state) tableReply(t *table, depth int) protocol.Value {
	if len(t.nodes) > 0 {
		if v, is := l.namedReply(t, depth); is {
			return v
		}
	}
	l.alloc(tableBytes)
	var elems []protocol.Value
	for i := 1; ; i++ {
		v := t.getInt(l, i)
		if v.isNil() {
			return protocol.Value{Kind: protocol.KindArray, Elems: elems}
		}
		l.alloc(replyBytes)
		elems = append(elems, l.toReply(v, depth+1))
	}
}

// replyBytes is the charge for an element of a reply.
const replyBytes = 128

func (l *state) namedReply(t *table, depth int) (protocol.Value, bool) {
	if s, is := l.textField(t, fieldErr); is {
		return protocol.ErrValue(oneLine(cString(s))), true
	}
	if s, is := l.textField(t, fieldOK); is {
		return protocol.Simple(oneLine(cString(s))), true
	}
	if n, is := t.getStr(l, fieldDouble).float(); is {
		return protocol.Double(n), true
	}
	if s, is := l.textField(t, fieldBigNumber); is {
		return protocol.BigNumber(oneLine(s)), true
	}
	if inner, is := t.getStr(l, fieldVerbatim).table(); is {
		_, hasFormat := l.textField(inner, fieldFormat)
		if s, is := l.textField(inner, fieldString); is && hasFormat {
			return protocol.Verbatim(s), true
		}
	}
	if inner, is := t.getStr(l, fieldMap).table(); is {
		return l.entriesReply(inner, protocol.KindMap, depth), true
	}
	if inner, is := t.getStr(l, fieldSet).table(); is {
		return l.entriesReply(inner, protocol.KindSet, depth), true
	}
	return protocol.Value{}, false
}

func (l *state) entriesReply(t *table, kind protocol.Kind, depth int) protocol.Value {
	reply := protocol.Value{Kind: kind}
	for key := nilValue; ; {
		k, v, _ := t.next(l, key)
		if k.isNil() {
			return reply
		}
		l.alloc(2 * replyBytes)
		reply.Elems = append(reply.Elems, l.toReply(k, depth+1))
		if kind == protocol.KindMap {
			reply.Elems = append(reply.Elems, l.toReply(v, depth+1))
		}
		key = k
	}
}
