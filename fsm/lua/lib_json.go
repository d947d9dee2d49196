package lua

import (
	"math"
	"slices"
	"strconv"
)

// jsonConfig has the settings of an instance of cjson 2.1. Unlike in Redis, settings do not outlive a run, since
// replicas could not agree on them.
type jsonConfig struct {
	sparseConvert           bool
	sparseRatio, sparseSafe int
	encodeDepth             int
	decodeDepth             int
	precision               int
	keepBuffer              bool
	encodeInvalid           int // an index into encodeInvalidOptions
	decodeInvalid           bool
}

var encodeInvalidOptions = []string{"off", "on", "null"}

// jsonStackDepth limits the nesting of structures, whatever the settings. Each level uses the stack: Lua's in Redis,
// and Go's here.
const jsonStackDepth = 2600

func newJSONConfig() *jsonConfig {
	return &jsonConfig{
		sparseRatio: 2, sparseSafe: 10, encodeDepth: 1000, decodeDepth: 1000,
		precision: 14, keepBuffer: true, decodeInvalid: true,
	}
}

// jsonFunction is a function of the library with the settings c.
type jsonFunction func(l *state, c *jsonConfig, args []value) (int, *raised)

var jsonFunctions = []struct {
	name string
	fn   jsonFunction
}{
	{"encode", jsonEncode},
	{"decode", jsonDecode},
	{"encode_sparse_array", jsonSparseArray},
	{"encode_max_depth", func(l *state, c *jsonConfig, args []value) (int, *raised) {
		return l.jsonInt(args, &c.encodeDepth, 1, math.MaxInt32)
	}},
	{"decode_max_depth", func(l *state, c *jsonConfig, args []value) (int, *raised) {
		return l.jsonInt(args, &c.decodeDepth, 1, math.MaxInt32)
	}},
	{"encode_number_precision", func(l *state, c *jsonConfig, args []value) (int, *raised) {
		return l.jsonInt(args, &c.precision, 1, 14)
	}},
	{"encode_keep_buffer", func(l *state, c *jsonConfig, args []value) (int, *raised) {
		return l.jsonSwitch(args, &c.keepBuffer)
	}},
	{"encode_invalid_numbers", jsonEncodeInvalid},
	{"decode_invalid_numbers", func(l *state, c *jsonConfig, args []value) (int, *raised) {
		return l.jsonSwitch(args, &c.decodeInvalid)
	}},
}

// jsonLibrary returns the instance with the settings of the run.
func (b *libraryBuilder) jsonLibrary() *table {
	t := b.table([]entry{{"new", jsonNew}})
	b.jsonNull = value{o: &userdata{name: "(nil)"}}
	for _, f := range jsonFunctions {
		b.l.lastID++
		b.set(t, f.name, value{o: &builtin{name: f.name, id: b.l.lastID, fn: func(l *state, args []value) (int, *raised) {
			if l.json == nil {
				l.json = newJSONConfig()
			}
			return f.fn(l, l.json, args)
		}}})
	}
	b.set(t, "null", b.jsonNull)
	b.set(t, "_NAME", constant("cjson"))
	b.set(t, "_VERSION", constant("2.1.0"))
	return t
}

// jsonNew is cjson.new, which returns an instance with its own settings.
func jsonNew(l *state, _ []value) (int, *raised) {
	c := newJSONConfig()
	l.alloc(int64(len(jsonFunctions)+1) * closureBytes)
	t := l.newTable(0, len(jsonFunctions)+4)
	for _, f := range jsonFunctions {
		fn := value{o: &builtin{name: f.name, fn: func(l *state, args []value) (int, *raised) {
			return f.fn(l, c, args)
		}}}
		t.set(l, constant(f.name), fn)
	}
	t.set(l, constant("new"), value{o: &builtin{name: "new", fn: jsonNew}})
	t.set(l, constant("null"), l.lib.jsonNull)
	t.set(l, constant("_NAME"), constant("cjson"))
	t.set(l, constant("_VERSION"), constant("2.1.0"))
	return l.one(value{o: t})
}

func (l *state) jsonArgs(args []value, limit int) *raised {
	if len(args) > limit {
		return l.argError(limit+1, "found too many arguments")
	}
	return nil
}

// jsonIntArg sets an integer setting from an optional argument.
func (l *state) jsonIntArg(args []value, n int, setting *int, low, high int) *raised {
	if arg(args, n).isNil() {
		return nil
	}
	v, err := l.checkInt(args, n)
	if err != nil {
		return err
	}
	if v < low || v > high {
		return l.argError(1, "expected integer between "+strconv.Itoa(low)+" and "+strconv.Itoa(high))
	}
	*setting = v
	return nil
}

func (l *state) jsonInt(args []value, setting *int, low, high int) (int, *raised) {
	if err := l.jsonArgs(args, 1); err != nil {
		return 0, err
	}
	if err := l.jsonIntArg(args, 1, setting, low, high); err != nil {
		return 0, err
	}
	return l.one(number(float64(*setting)))
}

// jsonOption sets a setting from an optional argument: the index of the word in options, or 0 or 1 for a boolean.
func (l *state) jsonOption(args []value, options []string, setting *int) *raised {
	v := arg(args, 1)
	switch v.o.(type) {
	case nil:
		return nil
	case trueTag:
		*setting = 1
		return nil
	case falseTag:
		*setting = 0
		return nil
	}
	word, err := l.checkString(args, 1)
	if err != nil {
		return err
	}
	i := slices.Index(options, cString(word))
	if i < 0 {
		return l.argError(1, "invalid option '"+cString(word)+"'")
	}
	*setting = i
	return nil
}

func (l *state) jsonSwitch(args []value, setting *bool) (int, *raised) {
	if err := l.jsonArgs(args, 1); err != nil {
		return 0, err
	}
	on := flag(*setting)
	if err := l.jsonOption(args, encodeInvalidOptions[:2], &on); err != nil {
		return 0, err
	}
	*setting = on == 1
	return l.one(boolean(*setting))
}

func jsonEncodeInvalid(l *state, c *jsonConfig, args []value) (int, *raised) {
	if err := l.jsonArgs(args, 1); err != nil {
		return 0, err
	}
	if err := l.jsonOption(args, encodeInvalidOptions, &c.encodeInvalid); err != nil {
		return 0, err
	}
	if c.encodeInvalid == 2 {
		return l.one(l.newString("null"))
	}
	return l.one(boolean(c.encodeInvalid == 1))
}

func jsonSparseArray(l *state, c *jsonConfig, args []value) (int, *raised) {
	if err := l.jsonArgs(args, 3); err != nil {
		return 0, err
	}
	convert := flag(c.sparseConvert)
	if err := l.jsonOption(args, encodeInvalidOptions[:2], &convert); err != nil {
		return 0, err
	}
	c.sparseConvert = convert == 1
	if err := l.jsonIntArg(args, 2, &c.sparseRatio, 0, math.MaxInt32); err != nil {
		return 0, err
	}
	if err := l.jsonIntArg(args, 3, &c.sparseSafe, 0, math.MaxInt32); err != nil {
		return 0, err
	}
	l.push(boolean(c.sparseConvert))
	l.push(number(float64(c.sparseRatio)))
	l.push(number(float64(c.sparseSafe)))
	return 3, nil
}

// jsonEncoder encodes a value.
type jsonEncoder struct {
	l   *state
	c   *jsonConfig
	out []byte
	// charged is the length of out at the last charge, and taken the charge for memory so far.
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

// chargeWritten charges for the bytes since the last charge. It charges their memory twice, since the buffer grows by
// doubling.
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

// sign returns -1 for a negative number, and 1 for others and NaN, which is encoded without a sign.
func sign(n float64) float64 {
	if n < 0 {
		return -1
	}
	return 1
}

// text encodes a string.
func (e *jsonEncoder) text(s string) {
	const hex = "0123456789abcdef"
	// The loop charges for the escapes of control characters, of six bytes each, as it writes them.
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
			if i&1023 == 0 {
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

// arrayLength returns the length of a table that is an array, or -1 for an object. By the settings, a sparse array is
// an object or an error.
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
