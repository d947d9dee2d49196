package lua

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// jsonToken is a token. Its value is its name in messages, or the text of an error.
type jsonToken string

const (
	jsonObjectBegin jsonToken = "T_OBJ_BEGIN"
	jsonObjectEnd   jsonToken = "T_OBJ_END"
	jsonArrayBegin  jsonToken = "T_ARR_BEGIN"
	jsonArrayEnd    jsonToken = "T_ARR_END"
	jsonString      jsonToken = "T_STRING"
	jsonNumber      jsonToken = "T_NUMBER"
	jsonBoolean     jsonToken = "T_BOOLEAN"
	jsonNullToken   jsonToken = "T_NULL"
	jsonColon       jsonToken = "T_COLON"
	jsonComma       jsonToken = "T_COMMA"
	jsonEnd         jsonToken = "T_END"
)

// jsonDecoder decodes a value.
type jsonDecoder struct {
	l     *state
	c     *jsonConfig
	src   string
	pos   int
	depth int
	// token is the current token, at its index in src, and value its value.
	token jsonToken
	at    int
	value value
}

func jsonDecode(l *state, c *jsonConfig, args []value) (int, *raised) {
	if len(args) != 1 {
		return 0, l.argError(1, "expected 1 argument")
	}
	src, err := l.checkString(args, 1)
	if err != nil {
		return 0, err
	}
	if len(src) >= 2 && (src[0] == 0 || src[1] == 0) {
		return 0, l.fail("JSON parser does not support UTF-16 or UTF-32")
	}
	d := jsonDecoder{l: l, c: c, src: src}
	d.next()
	v, err := d.parse()
	if err != nil {
		return 0, err
	}
	if d.next(); d.token != jsonEnd {
		return 0, d.fail("the end")
	}
	return l.one(v)
}

func (d *jsonDecoder) fail(expected string) *raised {
	return d.l.fail("Expected " + expected + " but found " + string(d.token) + " at character " + strconv.Itoa(d.at+1))
}

// peek returns the byte at an offset from the position, or 0 behind the end.
func (d *jsonDecoder) peek(offset int) byte {
	if d.pos+offset < len(d.src) {
		return d.src[d.pos+offset]
	}
	return 0
}

// bad sets the current token to an error at the position.
func (d *jsonDecoder) bad(message jsonToken) { d.token, d.at = message, d.pos }

// next reads a token.
func (d *jsonDecoder) next() {
	d.l.charge(1)
	from := d.pos
	for c := d.peek(0); c == ' ' || c == '\t' || c == '\n' || c == '\r'; c = d.peek(0) {
		d.pos++
	}
	d.l.charge(int64(d.pos-from) >> 3)
	d.at = d.pos
	c := d.peek(0)
	if single, is := jsonSingles[c]; is {
		d.token = single
		if single != jsonEnd {
			d.pos++
		}
		return
	}
	rest := d.src[d.pos:]
	switch {
	case c == '"':
		d.text()
	case c == '-' || isDecimalDigit(c):
		d.number()
	case strings.HasPrefix(rest, "true"):
		d.word(jsonBoolean, trueValue, 4)
	case strings.HasPrefix(rest, "false"):
		d.word(jsonBoolean, falseValue, 5)
	case strings.HasPrefix(rest, "null"):
		d.word(jsonNullToken, d.l.lib.jsonNull, 4)
	case d.c.decodeInvalid && isInvalidJSONNumber(rest):
		d.number()
	default:
		d.bad("invalid token")
	}
}

var jsonSingles = map[byte]jsonToken{
	'{': jsonObjectBegin, '}': jsonObjectEnd, '[': jsonArrayBegin, ']': jsonArrayEnd,
	',': jsonComma, ':': jsonColon, 0: jsonEnd,
}

func (d *jsonDecoder) word(t jsonToken, v value, length int) {
	d.token, d.value = t, v
	d.pos += length
}

// isInvalidJSONNumber reports whether s begins with a number that strtod accepts and JSON does not: with a plus sign or
// leading zeros, hexadecimal, infinite, or NaN.
func isInvalidJSONNumber(s string) bool {
	if strings.HasPrefix(s, "+") {
		return true
	}
	s = strings.TrimPrefix(s, "-")
	if strings.HasPrefix(s, "0") {
		return isHex(s) || len(s) > 1 && isDecimalDigit(s[1])
	}
	return wordPrefix(s) > 0
}

func (d *jsonDecoder) number() {
	rest := d.src[d.pos:]
	if !d.c.decodeInvalid && isInvalidJSONNumber(rest) {
		d.bad("invalid number")
		return
	}
	n := numeralPrefix(rest)
	d.l.charge(int64(n) >> 3)
	v, ok := parseNumber(rest[:n])
	if !ok {
		d.bad("invalid number")
		return
	}
	d.word(jsonNumber, number(v), n)
}

// chargeText charges for the bytes of a string from begin on.
func (d *jsonDecoder) chargeText(begin int) { d.l.charge(int64(d.pos-begin) >> 2) }

// text reads a string in quotes.
func (d *jsonDecoder) text() {
	d.pos++
	end := strings.IndexAny(d.src[d.pos:], "\"\\\x00")
	if end >= 0 && d.src[d.pos+end] == '"' {
		d.l.charge(int64(end) >> 4)
		d.value = d.l.newString(d.src[d.pos : d.pos+end])
		d.token = jsonString
		d.pos += end + 1
		return
	}
	var out []byte
	for begin := d.pos; ; {
		c := d.peek(0)
		switch c {
		case 0:
			d.chargeText(begin)
			d.bad("unexpected end of string")
			return
		case '"':
			d.chargeText(begin)
			d.pos++
			d.l.alloc(2 * int64(len(out)))
			d.token, d.value = jsonString, d.l.stringOf(out)
			return
		case '\\':
			var ok bool
			if out, ok = d.escape(out); !ok {
				d.chargeText(begin)
				return
			}
		default:
			out = append(out, c)
			d.pos++
		}
	}
}

// escape reads an escape sequence, and appends its value to out.
func (d *jsonDecoder) escape(out []byte) ([]byte, bool) {
	c := d.peek(1)
	if c == 'u' {
		return d.unicode(out)
	}
	i := strings.IndexByte(`"\/btnfr`, c)
	if i < 0 || c == 0 {
		d.bad("invalid escape code")
		return out, false
	}
	d.pos += 2
	return append(out, "\"\\/\b\t\n\f\r"[i]), true
}

func (d *jsonDecoder) unicode(out []byte) ([]byte, bool) {
	point, ok := d.hex4(2)
	length := 6
	if ok && point&0xF800 == 0xD800 {
		low, lowOK := d.hex4(8)
		ok = lowOK && point&0x400 == 0 && d.peek(6) == '\\' && d.peek(7) == 'u' && low&0xFC00 == 0xDC00
		point = (point&0x3FF)<<10 + low&0x3FF + 0x10000
		length = 12
	}
	if !ok {
		d.bad("invalid unicode escape code")
		return out, false
	}
	d.pos += length
	return utf8.AppendRune(out, point), true
}

func (d *jsonDecoder) hex4(offset int) (n rune, ok bool) {
	for i := range 4 {
		c := d.peek(offset + i)
		if !isHexDigit(c) {
			return 0, false
		}
		n = n<<4 | rune(digitValue(c))
	}
	return n, true
}

// parse reads the value that starts with the current token.
func (d *jsonDecoder) parse() (value, *raised) {
	switch d.token {
	case jsonString, jsonNumber, jsonBoolean, jsonNullToken:
		return d.value, nil
	case jsonObjectBegin:
		return d.nested(d.object)
	case jsonArrayBegin:
		return d.nested(d.array)
	default:
		return nilValue, d.fail("value")
	}
}

func (d *jsonDecoder) nested(parse func() (value, *raised)) (value, *raised) {
	d.depth++
	if d.depth > min(d.c.decodeDepth, jsonStackDepth) {
		return nilValue, d.l.fail("Found too many nested data structures (" + strconv.Itoa(d.depth) + ") at character " +
			strconv.Itoa(d.pos))
	}
	v, err := parse()
	d.depth--
	return v, err
}

func (d *jsonDecoder) object() (value, *raised) {
	t := d.l.newTable(0, 0)
	d.next()
	if d.token == jsonObjectEnd {
		return value{o: t}, nil
	}
	for {
		if d.token != jsonString {
			return nilValue, d.fail("object key string")
		}
		key := d.value
		if d.next(); d.token != jsonColon {
			return nilValue, d.fail("colon")
		}
		d.next()
		v, err := d.parse()
		if err != nil {
			return nilValue, err
		}
		t.set(d.l, key, v)
		switch d.next(); d.token {
		case jsonObjectEnd:
			return value{o: t}, nil
		case jsonComma:
			d.next()
		default:
			return nilValue, d.fail("comma or object end")
		}
	}
}

func (d *jsonDecoder) array() (value, *raised) {
	t := d.l.newTable(0, 0)
	d.next()
	if d.token == jsonArrayEnd {
		return value{o: t}, nil
	}
	for i := 1; ; i++ {
		v, err := d.parse()
		if err != nil {
			return nilValue, err
		}
		t.setInt(d.l, i, v)
		switch d.next(); d.token {
		case jsonArrayEnd:
			return value{o: t}, nil
		case jsonComma:
			d.next()
		default:
			return nilValue, d.fail("comma or array end")
		}
	}
}
