package lua

import "strconv"

// library has the global functions, and the tables of functions such as string. As in Redis, they are read-only, so
// concurrent runs share them, and the compiler can resolve functions.
type library struct {
	globals    *table
	globalMeta *table
	stringMeta *table
	// lastID is the highest identity in the library.
	lastID       uint32
	jsonNull     value // cjson.null
	errorHandler value // the handler to which Redis passes uncaught errors
	// fields has the fields of the tables once more, for the compiler. Unlike a search in a table, a search in a map
	// charges no run.
	fields map[*table]map[string]value
}

// shared is the library of this release. The functions of the library use state.lib instead, since a reference to this
// variable would be an initialization cycle.
var shared = newLibrary()

// entry is a library function with its name.
type entry struct {
	name string
	fn   func(l *state, args []value) (int, *raised)
}

// libraryBuilder builds a library. Its state has an unlimited budget.
type libraryBuilder struct {
	*library
	l *state
}

func newLibrary() *library {
	b := libraryBuilder{
		library: &library{fields: make(map[*table]map[string]value)},
		l:       &state{budget: budget{steps: 1 << 60, memory: 1 << 60}, env: new(Env)},
	}
	b.globals = b.table(baseFunctions)
	b.set(b.globals, "_VERSION", constant("Lua 5.1"))
	stringLib := b.table(stringFunctions)
	b.set(b.globals, "string", value{o: stringLib})
	b.stringMeta = b.table(nil)
	b.set(b.stringMeta, "__index", value{o: stringLib})
	b.set(b.globals, "table", value{o: b.table(tableFunctions)})
	b.set(b.globals, "math", value{o: b.mathLibrary()})
	b.set(b.globals, "bit", value{o: b.table(bitFunctions)})
	b.set(b.globals, "struct", value{o: b.table(structFunctions)})
	b.set(b.globals, "cjson", value{o: b.jsonLibrary()})
	b.set(b.globals, "cmsgpack", value{o: b.msgpackLibrary()})
	redis := value{o: b.redisLibrary()}
	b.set(b.globals, "redis", redis)
	b.set(b.globals, "server", redis)
	b.globalMeta = b.table([]entry{{"__index", missingGlobal}})
	b.protect(b.globals)
	b.protect(b.stringMeta)
	b.protect(b.globalMeta)
	b.errorHandler = b.fixed("__redis__err__handler")
	b.lastID = b.l.lastID
	return b.library
}

func (b *libraryBuilder) table(entries []entry) *table {
	t := b.l.newTable(0, 0)
	b.l.identity(value{o: t})
	b.fields[t] = make(map[string]value)
	for _, e := range entries {
		b.l.lastID++
		b.set(t, e.name, value{o: &builtin{name: e.name, id: b.l.lastID, fn: e.fn}})
	}
	return t
}

func (b *libraryBuilder) set(t *table, name string, v value) {
	t.set(b.l, constant(name), v)
	b.fields[t][name] = v
}

// protect makes a table and the tables in its fields read-only.
func (b *libraryBuilder) protect(t *table) {
	if t.readonly {
		return
	}
	t.readonly = true
	for i := range t.nodes {
		if inner, is := t.nodes[i].val.table(); is {
			b.protect(inner)
		}
	}
}

// fixed returns a global variable that is the same in all runs, or nil. KEYS, ARGV and _G differ between runs.
func (lib *library) fixed(name string) value { return lib.fields[lib.globals][name] }

// field returns a field of a table of the library, or nil.
func (lib *library) field(t *table, name string) value { return lib.fields[t][name] }

// missingGlobal is the __index of the table of globals.
func missingGlobal(l *state, args []value) (int, *raised) {
	if len(args) != 2 {
		return 0, l.fail("Wrong number of arguments to luaProtectedTableError")
	}
	name, ok := l.textOf(args[1])
	if !ok {
		return 0, l.fail("Second argument to luaProtectedTableError must be a string or number")
	}
	return 0, l.fail("Script attempted to access nonexistent global variable '" + cString(name) + "'")
}

// globalTable returns _G, which has the globals of the library, KEYS, ARGV and itself. The first call in a run creates
// it.
func (l *state) globalTable() *table {
	if l.globals != nil {
		return l.globals
	}
	from := l.lib.globals
	t := l.newTable(0, len(from.nodes))
	for i := range from.nodes {
		if n := &from.nodes[i]; !n.val.isNil() {
			t.set(l, n.key, n.val)
		}
	}
	t.set(l, constant("KEYS"), value{o: l.keys})
	t.set(l, constant("ARGV"), value{o: l.argv})
	t.set(l, constant("_G"), value{o: t})
	t.meta, t.readonly = l.lib.globalMeta, true
	l.globals = t
	return t
}

// arg returns the argument n, or nil if it is missing. As in messages, the first argument is 1.
func arg(args []value, n int) value {
	if n <= len(args) {
		return args[n-1]
	}
	return nilValue
}

func (l *state) wrongType(args []value, n int, expected string) *raised {
	got := "no value"
	if n <= len(args) {
		got = args[n-1].typeName()
	}
	return l.argError(n, expected+" expected, got "+got)
}

func (l *state) checkAny(args []value, n int) *raised {
	if n > len(args) {
		return l.argError(n, "value expected")
	}
	return nil
}

func (l *state) checkTable(args []value, n int) (*table, *raised) {
	if t, is := arg(args, n).table(); is {
		return t, nil
	}
	return nil, l.wrongType(args, n, "table")
}

func (l *state) checkFunction(args []value, n int) *raised {
	if arg(args, n).isFunction() {
		return nil
	}
	return l.wrongType(args, n, "function")
}

// textOf returns the text of a string or a number. It returns false for other types.
func (l *state) textOf(v value) (string, bool) {
	switch x := v.o.(type) {
	case *str:
		return x.s, true
	case numberTag:
		l.allocString(16)
		return formatNumber(v.n), true
	default:
		return "", false
	}
}

// stringValue returns a number as a string, and any other value unchanged.
func (l *state) stringValue(v value) value {
	if _, is := v.o.(numberTag); is {
		return l.newString(formatNumber(v.n))
	}
	return v
}

func (l *state) checkString(args []value, n int) (string, *raised) {
	if n <= len(args) {
		if s, ok := l.textOf(args[n-1]); ok {
			return s, nil
		}
	}
	return "", l.wrongType(args, n, "string")
}

func (l *state) optString(args []value, n int, otherwise string) (string, *raised) {
	if arg(args, n).isNil() {
		return otherwise, nil
	}
	return l.checkString(args, n)
}

func (l *state) checkNumber(args []value, n int) (float64, *raised) {
	if n <= len(args) {
		if x, ok := l.toNumber(args[n-1]); ok {
			return x, nil
		}
	}
	return 0, l.wrongType(args, n, "number")
}

// checkInt returns an argument as a C int: the lower 32 bits of the number.
func (l *state) checkInt(args []value, n int) (int, *raised) {
	x, err := l.checkNumber(args, n)
	return int(int32(toInt64(x))), err
}

func (l *state) optInt(args []value, n, otherwise int) (int, *raised) {
	if arg(args, n).isNil() {
		return otherwise, nil
	}
	return l.checkInt(args, n)
}

// checkInt64 returns an argument as a C ptrdiff_t.
func (l *state) checkInt64(args []value, n int) (int64, *raised) {
	x, err := l.checkNumber(args, n)
	return toInt64(x), err
}

func (l *state) optInt64(args []value, n int, otherwise int64) (int64, *raised) {
	if arg(args, n).isNil() {
		return otherwise, nil
	}
	return l.checkInt64(args, n)
}

// one pushes the only result of a library function, and returns the number of results.
func (l *state) one(v value) (int, *raised) {
	l.push(v)
	return 1, nil
}

// hex12 formats an identity like an address.
func hex12(id uint32) string {
	digits := strconv.FormatUint(uint64(id), 16)
	return "0x" + "000000000000"[len(digits):] + digits
}
