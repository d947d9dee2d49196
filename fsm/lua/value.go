package lua

// value is a Lua value. The zero value is nil.
//
// o is nil for nil, numberTag, trueTag, falseTag, or a pointer to a str, table, closure, builtin or userdata. A number
// is in n and not in o, since an interface of float64 would allocate each result of an addition. Package unsafe would
// save a third of the space, but the state machine does not use it.
type value struct {
	o any
	n float64
}

type (
	numberTag struct{}
	trueTag   struct{}
	falseTag  struct{}
)

var (
	nilValue   = value{}
	trueValue  = value{o: trueTag{}}
	falseValue = value{o: falseTag{}}
)

// userdata is the type of cjson.null, which is the only value of this type.
type userdata struct {
	name string
}

func number(n float64) value { return value{o: numberTag{}, n: n} }

func boolean(b bool) value {
	if b {
		return trueValue
	}
	return falseValue
}

func (v value) isNil() bool { return v.o == nil }

// falsy reports whether v is false in a condition: nil or false.
func (v value) falsy() bool {
	if v.o == nil {
		return true
	}
	_, is := v.o.(falseTag)
	return is
}

// float returns v as a number, without conversion.
func (v value) float() (float64, bool) {
	_, is := v.o.(numberTag)
	return v.n, is
}

// str returns v as a string, without conversion.
func (v value) str() (*str, bool) {
	s, is := v.o.(*str)
	return s, is
}

func (v value) table() (*table, bool) {
	t, is := v.o.(*table)
	return t, is
}

func (v value) isFunction() bool {
	switch v.o.(type) {
	case *closure, *builtin:
		return true
	default:
		return false
	}
}

// typeName returns the type of v as type() does.
func (v value) typeName() string {
	switch v.o.(type) {
	case nil:
		return "nil"
	case numberTag:
		return "number"
	case trueTag, falseTag:
		return "boolean"
	case *str:
		return "string"
	case *table:
		return "table"
	case *userdata:
		return "userdata"
	default:
		return "function"
	}
}

// str is a Lua string: any bytes. It is immutable except for the hash, which hashOf stores at its first call.
// Concurrent runs may share only strings that have a hash: see newConstant.
type str struct {
	s    string
	hash uint32 // 0 if unknown
}

// hashOf returns the hash of a string. It must be the hash of Redis, since the order of pairs depends on it.
func (l *state) hashOf(s *str) uint32 {
	if s.hash != 0 {
		return s.hash
	}
	l.charge(int64(len(s.s)) >> 3)
	h := hashString(s.s)
	if h != 0 {
		s.hash = h
	}
	return h
}

// hashString returns the hash of Lua 5.1, except that it reads all bytes of a long string, as Redis does.
func hashString(s string) uint32 {
	h := uint32(len(s))
	for i := len(s) - 1; i >= 0; i-- {
		h ^= h<<5 + h>>2 + uint32(s[i])
	}
	return h
}

// newConstant returns a string that concurrent runs may share.
func newConstant(s string) *str { return &str{s: s, hash: hashString(s)} }

func constant(s string) value { return value{o: newConstant(s)} }

// closure is a Lua function with its captured variables.
type closure struct {
	proto *proto
	up    []*upvalue
	id    uint32
}

// upvalue is a captured variable. While it is open, its value is in the stack at index; afterwards the value is in v.
type upvalue struct {
	open  bool
	index int
	v     value
	next  *upvalue // the next open one, with a lower index
}

// builtin is a library function. fn pushes its results and returns their number. Concurrent runs share the builtins.
type builtin struct {
	name string
	id   uint32
	fn   func(l *state, args []value) (int, *raised)
}
