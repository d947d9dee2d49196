package lua

import "strings"

// comment skips a comment. The position is at the second dash.
func (x *lexer) comment() {
	x.pos++
	if x.peek(0) == '[' {
		x.start = x.pos
		if level, isLong := x.longBracket(); isLong {
			x.long(level, "unfinished long comment")
			return
		}
	}
	for !x.atEnd() && x.src[x.pos] != '\n' && x.src[x.pos] != '\r' {
		x.pos++
	}
}

// bracket reads a long string, or a single [.
func (x *lexer) bracket() lexeme {
	level, isLong := x.longBracket()
	switch {
	case isLong:
		return lexeme{t: tkString, s: x.long(level, "unfinished long string")}
	case level > 0:
		x.failText("invalid long string delimiter")
	}
	return lexeme{t: '['}
}

// longBracket reads an opening long bracket: a [, any number of equal signs, and a second [. The level is the number of
// equal signs. If the second [ is missing, isLong is false.
func (x *lexer) longBracket() (level int, isLong bool) {
	x.pos++
	for x.peek(0) == '=' {
		x.pos++
		level++
	}
	if x.peek(0) == '[' {
		x.pos++
		return level, true
	}
	return level, false
}

// long reads the text of a long string or comment, and the closing bracket. It drops a line break at the start of the
// text, and replaces other line breaks by \n.
func (x *lexer) long(level int, unfinished string) string {
	if c := x.peek(0); !x.atEnd() && (c == '\n' || c == '\r') {
		x.newline()
	}
	var text strings.Builder
	from := x.pos
	for !x.atEnd() {
		switch c := x.src[x.pos]; c {
		case ']':
			end := x.pos
			if x.closesLong(level) {
				text.WriteString(x.src[from:end])
				return text.String()
			}
		case '\n', '\r':
			text.WriteString(x.src[from:x.pos])
			text.WriteByte('\n')
			x.newline()
			from = x.pos
		default:
			x.pos++
		}
	}
	x.failNear(unfinished, tokenText(tkEOF))
	return ""
}

// closesLong reads a ], any number of equal signs and, if their number is level, a second ]. It reports whether these
// are a closing bracket of the level.
func (x *lexer) closesLong(level int) bool {
	x.pos++
	n := 0
	for x.peek(0) == '=' {
		x.pos++
		n++
	}
	if n == level && x.peek(0) == ']' {
		x.pos++
		return true
	}
	return false
}

// quoted reads a string in quotes.
func (x *lexer) quoted(quote byte) string {
	x.pos++
	from := x.pos
	var text strings.Builder
	for {
		if x.atEnd() {
			x.failNear("unfinished string", tokenText(tkEOF))
		}
		switch c := x.src[x.pos]; c {
		case quote:
			if text.Len() == 0 {
				s := x.src[from:x.pos]
				x.pos++
				return s
			}
			text.WriteString(x.src[from:x.pos])
			x.pos++
			return text.String()
		case '\n', '\r':
			x.failNear("unfinished string", string(quote)+text.String()+x.src[from:x.pos])
		case '\\':
			text.WriteString(x.src[from:x.pos])
			x.escape(quote, &text)
			from = x.pos
		default:
			x.pos++
		}
	}
}

// escape reads an escape sequence, and appends its value to text. quote is the quote that began the string.
func (x *lexer) escape(quote byte, text *strings.Builder) {
	x.pos++
	if x.atEnd() {
		return // quoted reports the unfinished string
	}
	c := x.src[x.pos]
	if i := strings.IndexByte("abfnrtv", c); i >= 0 {
		text.WriteByte("\a\b\f\n\r\t\v"[i])
		x.pos++
		return
	}
	switch {
	case c == '\n' || c == '\r':
		text.WriteByte('\n')
		x.newline()
	case isDecimalDigit(c):
		code := 0
		for i := 0; i < 3 && isDecimalDigit(x.peek(0)); i++ {
			code = code*10 + int(x.src[x.pos]-'0')
			x.pos++
		}
		if code > 255 {
			x.failNear("escape sequence too large", string(quote)+text.String())
		}
		text.WriteByte(byte(code))
	default:
		text.WriteByte(c)
		x.pos++
	}
}
