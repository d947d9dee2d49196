package lua

import (
	"fmt"
	"strings"
)

// token is the kind of a token: one of the constants, or the byte of a token of one character.
type token int

// The tokens, in the order of tokenNames. Reserved words are first.
const (
	tkAnd token = iota + 257
	tkBreak
	tkDo
	tkElse
	tkElseif
	tkEnd
	tkFalse
	tkFor
	tkFunction
	tkIf
	tkIn
	tkLocal
	tkNil
	tkNot
	tkOr
	tkRepeat
	tkReturn
	tkThen
	tkTrue
	tkUntil
	tkWhile
	tkConcat
	tkDots
	tkEq
	tkGe
	tkLe
	tkNe
	tkNumber
	tkName
	tkString
	tkEOF
)

var tokenNames = [...]string{
	"and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil", "not", "or",
	"repeat", "return", "then", "true", "until", "while", "..", "...", "==", ">=", "<=", "~=",
	"<number>", "<name>", "<string>", "<eof>",
}

// reserved has the tokens of the reserved words. In Lua 5.1, goto is not reserved.
var reserved = func() map[string]token {
	m := make(map[string]token)
	for t := tkAnd; t <= tkWhile; t++ {
		m[tokenNames[t-tkAnd]] = t
	}
	return m
}()

// lexeme is a token with its value.
type lexeme struct {
	t token
	n float64
	s string
}

// lexer reads tokens, with one token of look-ahead.
type lexer struct {
	src      string
	pos      int
	line     int // the line of the current token
	lastLine int // the line of the token before the current one
	current  lexeme
	ahead    lexeme
	hasAhead bool
	// last is the last token that was read, and start its index in src, for messages.
	start     int
	last      lexeme
	chunkName string
}

// syntaxError is a compile error. The text has the position.
type syntaxError struct{ text string }

func (e *syntaxError) Error() string { return e.text }

// fail ends the compilation with a panic, which compileChunk recovers. All functions of the compiler can fail, and they
// recurse deeply.
func (x *lexer) fail(message string) {
	panic(&syntaxError{text: fmt.Sprintf("%s:%d: %s", chunkID(x.chunkName), x.line, message)})
}

// failNear fails with a message that quotes the text near the error.
func (x *lexer) failNear(message, near string) {
	if zero := strings.IndexByte(near, 0); zero >= 0 {
		near = near[:zero]
	}
	x.fail(message + " near '" + near + "'")
}

// failHere fails at the current token.
func (x *lexer) failHere(message string) { x.failNear(message, x.describe(x.current.t)) }

// failText fails in the middle of a token.
func (x *lexer) failText(message string) { x.failNear(message, x.src[x.start:x.pos]) }

// describe returns a token for a message: the text of a name, number or string, and otherwise the name of the token.
func (x *lexer) describe(t token) string {
	switch t {
	case tkString:
		open := x.src[x.start : x.start+1]
		if open != "[" {
			return open + x.last.s + open
		}
		level := strings.IndexByte(x.src[x.start+1:], '[')
		bracket := strings.Repeat("=", level)
		return "[" + bracket + "[" + x.last.s + "]" + bracket + "]"
	case tkName, tkNumber:
		return x.src[x.start:x.pos]
	default:
		return tokenText(t)
	}
}

func tokenText(t token) string {
	switch {
	case t >= tkAnd:
		return tokenNames[t-tkAnd]
	case t < 32 || t == 127:
		return fmt.Sprintf("char(%d)", int(t))
	default:
		return string([]byte{byte(t)})
	}
}

// chunkID returns the name of a source for messages: the name behind "@" or "=", or the start of the source itself.
func chunkID(name string) string {
	// Redis's Lua has a buffer of 80 bytes for it.
	const maxNamed, maxFile, maxText = 79, 72, 63
	if zero := strings.IndexByte(name, 0); zero >= 0 {
		name = name[:zero]
	}
	if rest, isFile := strings.CutPrefix(name, "@"); isFile {
		if len(rest) > maxFile {
			return "..." + rest[len(rest)-maxFile:]
		}
		return rest
	}
	if rest, isNamed := strings.CutPrefix(name, "="); isNamed {
		return rest[:min(len(rest), maxNamed)]
	}
	line := name
	if end := strings.IndexAny(line, "\n\r"); end >= 0 {
		line = line[:end]
	}
	line = line[:min(len(line), maxText)]
	if len(line) < len(name) {
		line += "..."
	}
	return `[string "` + line + `"]`
}

// next moves to the next token.
func (x *lexer) next() {
	x.lastLine = x.line
	if x.hasAhead {
		x.current, x.hasAhead = x.ahead, false
		return
	}
	x.current = x.read()
	x.last = x.current
}

// lookAhead reads the token after the current one.
func (x *lexer) lookAhead() token {
	x.ahead, x.hasAhead = x.read(), true
	x.last = x.ahead
	return x.ahead.t
}

// peek returns the byte at an offset from the position, or 0 behind the end. The source may have zero bytes, too.
func (x *lexer) peek(offset int) byte {
	if x.pos+offset < len(x.src) {
		return x.src[x.pos+offset]
	}
	return 0
}

func (x *lexer) atEnd() bool { return x.pos >= len(x.src) }

// newline skips a line break: \n, \r, \r\n or \n\r.
func (x *lexer) newline() {
	first := x.src[x.pos]
	x.pos++
	if c := x.peek(0); !x.atEnd() && (c == '\n' || c == '\r') && c != first {
		x.pos++
	}
	x.line++
}

func (x *lexer) read() lexeme {
	for !x.atEnd() {
		x.start = x.pos
		switch c := x.src[x.pos]; {
		case c == '\n' || c == '\r':
			x.newline()
		case isSpace(c):
			x.pos++
		case c == '-':
			x.pos++
			if x.peek(0) != '-' {
				return lexeme{t: '-'}
			}
			x.comment()
		case c == '[':
			return x.bracket()
		case c == '"' || c == '\'':
			return lexeme{t: tkString, s: x.quoted(c)}
		case c == '.':
			return x.dots()
		case isDecimalDigit(c):
			return x.numeral()
		case isNameStart(c):
			return x.name()
		default:
			return x.operator(c)
		}
	}
	x.start = x.pos
	return lexeme{t: tkEOF}
}

// operator reads an operator of one byte, or one of == <= >= ~=.
func (x *lexer) operator(c byte) lexeme {
	x.pos++
	if x.peek(0) == '=' {
		double := token(0)
		switch c {
		case '=':
			double = tkEq
		case '<':
			double = tkLe
		case '>':
			double = tkGe
		case '~':
			double = tkNe
		}
		if double != 0 {
			x.pos++
			return lexeme{t: double}
		}
	}
	return lexeme{t: token(c)}
}

// dots reads a token that begins with a dot: . .. ... or a number.
func (x *lexer) dots() lexeme {
	switch {
	case isDecimalDigit(x.peek(1)):
		return x.numeral()
	case x.peek(1) != '.':
		x.pos++
		return lexeme{t: '.'}
	case x.peek(2) != '.':
		x.pos += 2
		return lexeme{t: tkConcat}
	default:
		x.pos += 3
		return lexeme{t: tkDots}
	}
}

func isNameStart(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }

func isNamePart(c byte) bool { return isNameStart(c) || isDecimalDigit(c) }

func (x *lexer) name() lexeme {
	for !x.atEnd() && isNamePart(x.src[x.pos]) {
		x.pos++
	}
	text := x.src[x.start:x.pos]
	if t, is := reserved[text]; is {
		return lexeme{t: t}
	}
	return lexeme{t: tkName, s: text}
}

// numeral reads all bytes that may be part of a number, and then parses the number.
func (x *lexer) numeral() lexeme {
	for isDecimalDigit(x.peek(0)) || x.peek(0) == '.' {
		x.pos++
	}
	if c := x.peek(0) | 0x20; c == 'e' {
		x.pos++
		if c := x.peek(0); c == '+' || c == '-' {
			x.pos++
		}
	}
	for !x.atEnd() && isNamePart(x.src[x.pos]) {
		x.pos++
	}
	n, ok := parseNumber(x.src[x.start:x.pos])
	if !ok {
		x.failText("malformed number")
	}
	return lexeme{t: tkNumber, n: n}
}
