package lua

import (
	"strings"
)

// event is the event of a metamethod.
type event uint8

const (
	eventIndex event = iota
	eventNewIndex
	eventEq
	// table.lacks has bits for the events up to eventEq only.
	eventAdd
	eventSub
	eventMul
	eventDiv
	eventMod
	eventPow
	eventUnm
	eventLen
	eventLt
	eventLe
	eventConcat
	eventCall
)

var eventNames = [...]*str{
	newConstant("__index"), newConstant("__newindex"), newConstant("__eq"),
	newConstant("__add"), newConstant("__sub"), newConstant("__mul"), newConstant("__div"),
	newConstant("__mod"), newConstant("__pow"), newConstant("__unm"), newConstant("__len"),
	newConstant("__lt"), newConstant("__le"), newConstant("__concat"), newConstant("__call"),
}

// maxMetaLoop limits the length of a chain of __index or __newindex.
const maxMetaLoop = 100

func (l *state) metatable(v value) *table {
	switch x := v.o.(type) {
	case *table:
		return x.meta
	case *str:
		return l.lib.stringMeta
	default:
		return nil
	}
}

func (l *state) metamethod(v value, e event) value { return l.metaField(l.metatable(v), e) }

func (l *state) metaField(meta *table, e event) value {
	if meta == nil {
		return nilValue
	}
	if e > eventEq {
		return meta.getStr(l, eventNames[e])
	}
	if meta.lacks>>e&1 != 0 {
		return nilValue
	}
	m := meta.getStr(l, eventNames[e])
	if m.isNil() && !meta.readonly { // concurrent runs may share a read-only table
		meta.lacks |= 1 << e
	}
	return m
}

// callMeta calls a metamethod with the first n arguments, and returns its first result.
func (l *state) callMeta(m value, n int, args [3]value) (value, *raised) {
	l.needStack(spareSlots)
	fn := l.top
	l.push(m)
	for _, a := range args[:n] {
		l.push(a)
	}
	if err := l.call(fn, 1); err != nil {
		return nilValue, err
	}
	l.top = fn
	return l.stack[fn], nil
}

// noOperand stands for the slot of a value that is in no slot of the stack. Error messages name the variable in a slot.
const noOperand = -1

// index returns object[key], with metamethods. slot is the slot of object, or noOperand.
func (l *state) index(object, key value, slot int) (value, *raised) {
	for range maxMetaLoop {
		var m value
		if t, is := object.table(); is {
			v := t.get(l, key)
			if !v.isNil() || t.meta == nil {
				return v, nil
			}
			if m = l.metaField(t.meta, eventIndex); m.isNil() {
				return nilValue, nil
			}
		} else if m = l.metamethod(object, eventIndex); m.isNil() {
			return nilValue, l.typeError(slot, object, "index")
		}
		if m.isFunction() {
			return l.callMeta(m, 2, [3]value{object, key})
		}
		object, slot = m, noOperand
		l.charge(1)
	}
	return nilValue, l.runtimeError("loop in gettable")
}

// setIndex assigns object[key] = val, with metamethods. slot is the slot of object, or noOperand.
func (l *state) setIndex(object, key, val value, slot int) *raised {
	for range maxMetaLoop {
		var m value
		if t, is := object.table(); is {
			if t.readonly {
				return l.runtimeError("Attempt to modify a readonly table")
			}
			if err := l.checkKey(key); err != nil {
				return err
			}
			slot := t.slot(l, key) // as in Lua, the slot exists even if a metamethod is called
			if t.meta == nil || !slot.isNil() {
				*slot = val
				return nil
			}
			if m = l.metaField(t.meta, eventNewIndex); m.isNil() {
				*slot = val
				return nil
			}
		} else if m = l.metamethod(object, eventNewIndex); m.isNil() {
			return l.typeError(slot, object, "index")
		}
		if m.isFunction() {
			_, err := l.callMeta(m, 3, [3]value{object, key, val})
			return err
		}
		object, slot = m, noOperand
		l.charge(1)
	}
	return l.runtimeError("loop in settable")
}

// checkKey returns an error for nil and NaN, which no table can have as keys.
func (l *state) checkKey(key value) *raised {
	if key.isNil() {
		return l.runtimeError("table index is nil")
	}
	if _, is := key.float(); is && key.n != key.n {
		return l.runtimeError("table index is NaN")
	}
	return nil
}

func (l *state) equal(a, b value) (bool, *raised) {
	x, is := a.table()
	if !is {
		return l.rawEqual(a, b), nil
	}
	y, is := b.table()
	if !is || x == y {
		return x == y, nil
	}
	m := l.sharedMeta(x.meta, y.meta, eventEq)
	if m.isNil() {
		return false, nil
	}
	v, err := l.callMeta(m, 2, [3]value{a, b})
	return !v.falsy(), err
}

// sharedMeta returns the metamethod of a comparison, or nil unless both metatables have the same one.
func (l *state) sharedMeta(a, b *table, e event) value {
	m := l.metaField(a, e)
	if m.isNil() || a == b {
		return m
	}
	if other := l.metaField(b, e); l.rawEqual(m, other) {
		return m
	}
	return nilValue
}

func (l *state) rawEqual(a, b value) bool {
	switch x := a.o.(type) {
	case numberTag:
		_, is := b.o.(numberTag)
		return is && a.n == b.n
	case *str:
		y, is := b.o.(*str)
		return is && (x == y || l.sameText(x.s, y.s))
	default:
		return a.o == b.o
	}
}

func (l *state) less(a, b value) (bool, *raised) {
	switch x := a.o.(type) {
	case numberTag:
		if _, is := b.o.(numberTag); is {
			return a.n < b.n, nil
		}
	case *str:
		if y, is := b.o.(*str); is {
			l.chargeBytes(min(len(x.s), len(y.s)))
			return x.s < y.s, nil
		}
	}
	return l.compareMeta(a, b, eventLt)
}

// lessEqual is a <= b. Without the metamethod __le it is not (b < a).
func (l *state) lessEqual(a, b value) (bool, *raised) {
	switch x := a.o.(type) {
	case numberTag:
		if _, is := b.o.(numberTag); is {
			return a.n <= b.n, nil
		}
	case *str:
		if y, is := b.o.(*str); is {
			l.chargeBytes(min(len(x.s), len(y.s)))
			return x.s <= y.s, nil
		}
	}
	return l.compareMeta(a, b, eventLe)
}

func (l *state) compareMeta(a, b value, e event) (bool, *raised) {
	if a.typeName() != b.typeName() {
		return false, l.compareError(a, b)
	}
	m := l.sharedMeta(l.metatable(a), l.metatable(b), e)
	swapped := false
	if m.isNil() && e == eventLe {
		m, swapped = l.sharedMeta(l.metatable(b), l.metatable(a), eventLt), true
	}
	if m.isNil() {
		return false, l.compareError(a, b)
	}
	if swapped {
		v, err := l.callMeta(m, 2, [3]value{b, a})
		return v.falsy(), err
	}
	v, err := l.callMeta(m, 2, [3]value{a, b})
	return !v.falsy(), err
}

// toNumber converts a number, or a string that has the form of a number, as arithmetic does.
func (l *state) toNumber(v value) (float64, bool) {
	switch x := v.o.(type) {
	case numberTag:
		return v.n, true
	case *str:
		l.charge(int64(len(x.s)) >> 2)
		return parseNumber(x.s)
	default:
		return 0, false
	}
}

// arith returns a op b for any operands. slotA and slotB are the slots of a and b, or noOperand.
func (l *state) arith(op opcode, a, b value, slotA, slotB int) (value, *raised) {
	x, okA := l.toNumber(a)
	y, okB := l.toNumber(b)
	if okA && okB {
		return number(arithmetic(op, x, y)), nil
	}
	e := eventAdd + event(op-opAdd)
	m := l.metamethod(a, e)
	if m.isNil() {
		m = l.metamethod(b, e)
	}
	if m.isNil() {
		if okA {
			a, slotA = b, slotB
		}
		return nilValue, l.typeError(slotA, a, "perform arithmetic on")
	}
	return l.callMeta(m, 2, [3]value{a, b})
}

// arithmetic returns x op y. opUnm ignores y.
func arithmetic(op opcode, x, y float64) float64 {
	switch op {
	case opAdd:
		return add(x, y)
	case opSub:
		return sub(x, y)
	case opMul:
		return mul(x, y)
	case opDiv:
		return div(x, y)
	case opMod:
		return mod(x, y)
	case opPow:
		return pow(x, y)
	default:
		return neg(x)
	}
}

func (l *state) length(v value, slot int) (value, *raised) {
	switch x := v.o.(type) {
	case *table:
		return number(float64(x.length(l))), nil
	case *str:
		return number(float64(len(x.s))), nil
	}
	return nilValue, l.typeError(slot, v, "get length of")
}

// concat concatenates the values of the slots from first to last, from right to left. It joins adjacent strings and
// numbers at once.
func (l *state) concat(first, last int) (value, *raised) {
	for last > first {
		a, b := l.stack[last-1], l.stack[last]
		if !joinable(a) || !joinable(b) {
			v, err := l.concatMeta(a, b, last)
			if err != nil {
				return nilValue, err
			}
			last--
			l.stack[last] = v
			continue
		}
		from := last - 1
		for from > first && joinable(l.stack[from-1]) {
			from--
		}
		l.stack[from] = l.join(l.stack[from : last+1])
		last = from
	}
	return l.stack[first], nil
}

func joinable(v value) bool {
	switch v.o.(type) {
	case *str, numberTag:
		return true
	default:
		return false
	}
}

// join returns the concatenation of strings and numbers.
func (l *state) join(parts []value) value {
	n := 0
	var digits [32]byte
	for _, v := range parts {
		if s, is := v.str(); is {
			n += len(s.s)
		} else {
			n += len(appendNumber(digits[:0], v.n))
		}
	}
	l.allocString(n)
	l.charge(int64(len(parts)) / 8)
	var text strings.Builder
	text.Grow(n)
	for _, v := range parts {
		if s, is := v.str(); is {
			text.WriteString(s.s)
		} else {
			text.Write(appendNumber(digits[:0], v.n))
		}
	}
	return l.text(text.String())
}

// concatMeta returns a .. b by a metamethod. b is in the slot at, and a in the slot before.
func (l *state) concatMeta(a, b value, at int) (value, *raised) {
	m := l.metamethod(a, eventConcat)
	if m.isNil() {
		m = l.metamethod(b, eventConcat)
	}
	if m.isNil() {
		if joinable(a) {
			return nilValue, l.typeError(at, b, "concatenate")
		}
		return nilValue, l.typeError(at-1, a, "concatenate")
	}
	return l.callMeta(m, 2, [3]value{a, b})
}
