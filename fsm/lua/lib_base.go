package lua

import "strings"

var baseFunctions = []entry{
	{"assert", baseAssert},
	{"collectgarbage", baseCollectGarbage},
	{"error", baseError},
	{"gcinfo", baseGCInfo},
	{"getmetatable", baseGetMetatable},
	{"ipairs", baseIpairs},
	{"load", baseLoad},
	{"loadstring", baseLoadString},
	{"next", baseNext},
	{"pairs", basePairs},
	{"pcall", basePcall},
	{"rawequal", baseRawEqual},
	{"rawget", baseRawGet},
	{"rawset", baseRawSet},
	{"select", baseSelect},
	{"setmetatable", baseSetMetatable},
	{"tonumber", baseToNumber},
	{"tostring", baseToString},
	{"type", baseType},
	{"unpack", baseUnpack},
	{"xpcall", baseXpcall},
	{"__redis__err__handler", baseErrorHandler},
}

func baseAssert(l *state, args []value) (int, *raised) {
	if err := l.checkAny(args, 1); err != nil {
		return 0, err
	}
	if !args[0].falsy() {
		l.needStack(len(args) + spareSlots)
		for _, v := range args {
			l.push(v)
		}
		return len(args), nil
	}
	message, err := l.optString(args, 2, "assertion failed!")
	if err != nil {
		return 0, err
	}
	return 0, l.fail(cString(message))
}

// baseCollectGarbage collects nothing. Its count is the charged memory, which is the same on all replicas.
func baseCollectGarbage(l *state, args []value) (int, *raised) {
	option, err := l.optString(args, 1, "collect")
	if err != nil {
		return 0, err
	}
	if _, err := l.optInt(args, 2, 0); err != nil {
		return 0, err
	}
	switch option {
	case "count":
		return l.one(number(l.usedKilobytes()))
	case "step":
		return l.one(falseValue)
	case "collect", "stop", "restart":
		return l.one(number(0))
	case "setpause", "setstepmul":
		return l.one(number(200))
	default:
		return 0, l.argError(1, "invalid option '"+cString(option)+"'")
	}
}

func baseGCInfo(l *state, _ []value) (int, *raised) {
	return l.one(number(float64(int64(l.usedKilobytes()))))
}

func (l *state) usedKilobytes() float64 { return float64(l.limits.MemoryBytes-l.memory) / 1024 }

func baseError(l *state, args []value) (int, *raised) {
	level, err := l.optInt(args, 2, 1)
	if err != nil {
		return 0, err
	}
	v := arg(args, 1)
	if message, is := l.textOf(v); is && level > 0 {
		return 0, l.throw(l.where(level) + message)
	}
	return 0, &raised{value: v}
}

var fieldMetatable = newConstant("__metatable")

// protectedMeta returns the __metatable field of the metatable of v, or nil.
func (l *state) protectedMeta(v value) value {
	if meta := l.metatable(v); meta != nil {
		return meta.getStr(l, fieldMetatable)
	}
	return nilValue
}

func baseGetMetatable(l *state, args []value) (int, *raised) {
	if err := l.checkAny(args, 1); err != nil {
		return 0, err
	}
	meta := l.metatable(args[0])
	if meta == nil {
		return l.one(nilValue)
	}
	if hidden := l.protectedMeta(args[0]); !hidden.isNil() {
		return l.one(hidden)
	}
	return l.one(value{o: meta})
}

func baseSetMetatable(l *state, args []value) (int, *raised) {
	t, err := l.checkTable(args, 1)
	if err != nil {
		return 0, err
	}
	meta, isTable := arg(args, 2).table()
	if !isTable && (len(args) < 2 || !args[1].isNil()) {
		return 0, l.argError(2, "nil or table expected")
	}
	if !l.protectedMeta(args[0]).isNil() {
		return 0, l.fail("cannot change a protected metatable")
	}
	if t.readonly {
		return 0, l.readonlyError()
	}
	t.meta = meta
	return l.one(args[0])
}

func (l *state) readonlyError() *raised {
	return l.runtimeError("Attempt to modify a readonly table")
}

func baseIpairs(l *state, args []value) (int, *raised) {
	if _, err := l.checkTable(args, 1); err != nil {
		return 0, err
	}
	l.push(value{o: ipairsStep})
	l.push(args[0])
	l.push(number(0))
	return 3, nil
}

// The iterators are in no table of the library. Their identities are never issued to other values.
var (
	ipairsStep = &builtin{name: "ipairs", id: 1<<32 - 1, fn: baseIpairsStep}
	pairsStep  = &builtin{name: "next", id: 1<<32 - 2, fn: baseNext}
)

func baseIpairsStep(l *state, args []value) (int, *raised) {
	i, err := l.checkInt(args, 2)
	if err != nil {
		return 0, err
	}
	t, err := l.checkTable(args, 1)
	if err != nil {
		return 0, err
	}
	v := t.getInt(l, i+1)
	if v.isNil() {
		return 0, nil
	}
	l.push(number(float64(i + 1)))
	l.push(v)
	return 2, nil
}

func basePairs(l *state, args []value) (int, *raised) {
	if _, err := l.checkTable(args, 1); err != nil {
		return 0, err
	}
	l.push(value{o: pairsStep})
	l.push(args[0])
	l.push(nilValue)
	return 3, nil
}

func baseNext(l *state, args []value) (int, *raised) {
	t, err := l.checkTable(args, 1)
	if err != nil {
		return 0, err
	}
	k, v, ok := t.next(l, arg(args, 2))
	if !ok {
		return 0, l.runtimeError("invalid key to 'next'")
	}
	l.push(k)
	if k.isNil() {
		return 1, nil
	}
	l.push(v)
	return 2, nil
}

func baseRawEqual(l *state, args []value) (int, *raised) {
	if err := l.checkAny(args, 1); err != nil {
		return 0, err
	}
	if err := l.checkAny(args, 2); err != nil {
		return 0, err
	}
	return l.one(boolean(l.rawEqual(args[0], args[1])))
}

func baseRawGet(l *state, args []value) (int, *raised) {
	t, err := l.checkTable(args, 1)
	if err != nil {
		return 0, err
	}
	if err := l.checkAny(args, 2); err != nil {
		return 0, err
	}
	return l.one(t.get(l, args[1]))
}

func baseRawSet(l *state, args []value) (int, *raised) {
	t, err := l.checkTable(args, 1)
	if err != nil {
		return 0, err
	}
	if err := l.checkAny(args, 2); err != nil {
		return 0, err
	}
	if err := l.checkAny(args, 3); err != nil {
		return 0, err
	}
	if t.readonly {
		return 0, l.readonlyError()
	}
	if err := l.checkKey(args[1]); err != nil {
		return 0, err
	}
	t.set(l, args[1], args[2])
	return l.one(args[0])
}

func baseSelect(l *state, args []value) (int, *raised) {
	if s, is := arg(args, 1).str(); is && strings.HasPrefix(s.s, "#") {
		return l.one(number(float64(len(args) - 1)))
	}
	i, err := l.checkInt(args, 1)
	if err != nil {
		return 0, err
	}
	n := len(args)
	if i < 0 {
		i += n
	} else if i > n {
		i = n
	}
	if i < 1 {
		return 0, l.argError(1, "index out of range")
	}
	return n - i, nil // the last arguments are on top of the stack, as results must be
}

func baseType(l *state, args []value) (int, *raised) {
	if err := l.checkAny(args, 1); err != nil {
		return 0, err
	}
	return l.one(typeNames[args[0].typeName()])
}

// typeNames has the results of type().
var typeNames = map[string]value{
	"nil": constant("nil"), "number": constant("number"), "boolean": constant("boolean"), "string": constant("string"),
	"table": constant("table"), "function": constant("function"), "userdata": constant("userdata"),
}

func baseUnpack(l *state, args []value) (int, *raised) {
	t, err := l.checkTable(args, 1)
	if err != nil {
		return 0, err
	}
	i, err := l.optInt(args, 2, 1)
	if err != nil {
		return 0, err
	}
	var last int
	if arg(args, 3).isNil() {
		last = t.length(l)
	} else if last, err = l.checkInt(args, 3); err != nil {
		return 0, err
	}
	if i > last {
		return 0, nil
	}
	n := last - i + 1
	if n+len(args) > maxResults {
		return 0, l.fail("too many results to unpack")
	}
	l.charge(int64(n) / 4)
	l.needStack(n)
	for ; i <= last; i++ {
		l.push(t.getInt(l, i))
	}
	return n, nil
}
