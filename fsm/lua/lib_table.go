package lua

import (
	"strconv"
	"strings"
)

var tableFunctions = []entry{
	{"concat", tableConcat},
	{"foreach", tableForeach},
	{"foreachi", tableForeachi},
	{"getn", tableGetn},
	{"insert", tableInsert},
	{"maxn", tableMaxn},
	{"remove", tableRemove},
	{"setn", tableSetn},
	{"sort", tableSort},
}

// rawSetInt assigns t[i] = v, without metamethods. It fails if t is read-only.
func (l *state) rawSetInt(t *table, i int, v value) *raised {
	if t.readonly {
		return l.readonlyError()
	}
	t.setInt(l, i, v)
	return nil
}

func tableGetn(l *state, args []value) (int, *raised) {
	t, err := l.checkTable(args, 1)
	if err != nil {
		return 0, err
	}
	return l.one(number(float64(t.length(l))))
}

func tableSetn(l *state, args []value) (int, *raised) {
	if _, err := l.checkTable(args, 1); err != nil {
		return 0, err
	}
	return 0, l.fail("'setn' is obsolete")
}

func tableMaxn(l *state, args []value) (int, *raised) {
	t, err := l.checkTable(args, 1)
	if err != nil {
		return 0, err
	}
	l.charge(int64(len(t.array)+len(t.nodes)) / 4)
	largest := 0.0
	for i := range t.array {
		if !t.array[i].isNil() {
			largest = float64(i + 1)
		}
	}
	for i := range t.nodes {
		if n, is := t.nodes[i].key.float(); is && n > largest && !t.nodes[i].val.isNil() {
			largest = n
		}
	}
	return l.one(number(largest))
}

func tableInsert(l *state, args []value) (int, *raised) {
	t, err := l.checkTable(args, 1)
	if err != nil {
		return 0, err
	}
	end := t.length(l) + 1
	at := end
	switch len(args) {
	case 2:
	case 3:
		if at, err = l.checkInt(args, 2); err != nil {
			return 0, err
		}
		end = max(end, at)
		l.charge(int64(end-at) / 4)
		for i := end; i > at; i-- {
			if err := l.rawSetInt(t, i, t.getInt(l, i-1)); err != nil {
				return 0, err
			}
		}
	default:
		return 0, l.fail("wrong number of arguments to 'insert'")
	}
	return 0, l.rawSetInt(t, at, args[len(args)-1])
}

func tableRemove(l *state, args []value) (int, *raised) {
	t, err := l.checkTable(args, 1)
	if err != nil {
		return 0, err
	}
	end := t.length(l)
	at, err := l.optInt(args, 2, end)
	if err != nil {
		return 0, err
	}
	if at < 1 || at > end {
		return 0, nil
	}
	removed := t.getInt(l, at)
	l.charge(int64(end-at) / 4)
	for ; at < end; at++ {
		if err := l.rawSetInt(t, at, t.getInt(l, at+1)); err != nil {
			return 0, err
		}
	}
	if err := l.rawSetInt(t, end, nilValue); err != nil {
		return 0, err
	}
	return l.one(removed)
}

func tableConcat(l *state, args []value) (int, *raised) {
	separator, err := l.optString(args, 2, "")
	if err != nil {
		return 0, err
	}
	t, err := l.checkTable(args, 1)
	if err != nil {
		return 0, err
	}
	from, err := l.optInt(args, 3, 1)
	if err != nil {
		return 0, err
	}
	var to int
	if arg(args, 4).isNil() {
		to = t.length(l)
	} else if to, err = l.checkInt(args, 4); err != nil {
		return 0, err
	}
	var text strings.Builder
	for i := from; i <= to; i++ {
		l.charge(1)
		v := t.getInt(l, i)
		s, ok := l.textOf(v)
		if !ok {
			return 0, l.fail("invalid value (" + v.typeName() + ") at index " + strconv.Itoa(i) + " in table for 'concat'")
		}
		l.formatted(&text, s)
		if i < to {
			l.formatted(&text, separator)
		}
	}
	l.alloc(stringBytes)
	return l.one(l.text(text.String()))
}

// visit calls a function with two values, and returns its first result.
func (l *state) visit(f, a, b value) (value, *raised) { return l.callMeta(f, 2, [3]value{a, b}) }

func tableForeach(l *state, args []value) (int, *raised) {
	t, err := l.checkTable(args, 1)
	if err != nil {
		return 0, err
	}
	if err := l.checkFunction(args, 2); err != nil {
		return 0, err
	}
	for key := nilValue; ; {
		k, v, ok := t.next(l, key)
		if !ok {
			return 0, l.runtimeError("invalid key to 'next'")
		}
		if k.isNil() {
			return 0, nil
		}
		result, err := l.visit(args[1], k, v)
		if err != nil {
			return 0, err
		}
		if !result.isNil() {
			return l.one(result)
		}
		key = k
	}
}

func tableForeachi(l *state, args []value) (int, *raised) {
	t, err := l.checkTable(args, 1)
	if err != nil {
		return 0, err
	}
	n := t.length(l)
	if err := l.checkFunction(args, 2); err != nil {
		return 0, err
	}
	for i := 1; i <= n; i++ {
		result, err := l.visit(args[1], number(float64(i)), t.getInt(l, i))
		if err != nil {
			return 0, err
		}
		if !result.isNil() {
			return l.one(result)
		}
	}
	return 0, nil
}
