package lua

// value is a Lua value. The zero value is nil, so fresh registers and table slots need no filling.
//
// o says what it is: nil (nil), numberTag (n is the number), trueTag, falseTag, or
// a pointer to a str, table, closure, builtin or userdata. The tags are empty
// structs: numbers live in the value itself and are not allocated, which an
// interface of float64 would do for every result of an addition. A pointer of package
// unsafe would save a third of the space; the state machine does without.
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

// userdata is a value without structure: cjson.null, and no other.
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

// falsy reports whether v counts as false in a condition.
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

// typeName is what type() answers for v.
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

// str is a Lua string: any bytes. It is immutable but for the hash, which is filled on first use. Strings
// that concurrent runs share have a hash from the start (see newConstant).
type str struct {
	s    string
	hash uint32
}

// hashOf returns the hash of a string. The order in which pairs visits a table follows from the hash, so
// scripts see the order of Redis.
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

// hashString is the hash of Lua 5.1, except that, as in Redis, all bytes of a long string
// count.
func hashString(s string) uint32 {
	h := uint32(len(s))
	for i := len(s) - 1; i >= 0; i-- {
		h ^= h<<5 + h>>2 + uint32(s[i])
	}
	return h
}

// newConstant returns a string that may be shared between runs.
func newConstant(s string) *str { return &str{s: s, hash: hashString(s)} }

func constant(s string) value { return value{o: newConstant(s)} }

// closure is a Lua function: code and captured variables.
type closure struct {
	proto *proto
	up    []*upvalue
	id    uint32
}

// upvalue is a captured variable. It lives in the stack, at index, while the variable's function runs,
// and afterwards in v. An index stays valid when the stack moves.
type upvalue struct {
	open  bool
	index int
	v     value
	next  *upvalue // the next lower open one
}

// builtin is a library function. args are the arguments. The function pushes its results and returns
// their number. All runs share the builtins.
type builtin struct {
	name string
	id   uint32
	fn   func(l *state, args []value) (int, *raised)
}
