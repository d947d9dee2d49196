package fsm

import (
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// Replies that many ops give.
var (
	errSyntax      = protocol.ErrSyntax.Value()
	errNotInteger  = protocol.ErrNotInteger.Value()
	errNotPositive = protocol.Err("value is out of range, must be positive")
	errNumKeys     = protocol.Err("numkeys should be greater than 0")
	errNotFloat    = protocol.ErrNotFloat.Value()
	errNoSuchKey   = protocol.ErrNoSuchKey.Value()
	errSameObject  = protocol.Err("source and destination objects are the same")
	errDBRange     = protocol.ErrDBIndex.Value()
	errWrongType   = protocol.ErrWrongType.Value()
	errTooLong     = protocol.ErrStringTooBig.Value()

	zero = protocol.Integer(0)
	one  = protocol.Integer(1)
)

// errExpireTime is the error for an invalid duration or instant.
func errExpireTime(name string) protocol.Value {
	return protocol.InvalidExpire(name).Value()
}

// isWord reports whether s is word in any case. word is upper case ASCII. [strings.EqualFold] would take
// a Kelvin sign for a K.
func isWord(s, word string) bool {
	if len(s) != len(word) {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		if c != word[i] {
			return false
		}
	}
	return true
}

// boolean is the integer 1 or 0.
func boolean(b bool) protocol.Value {
	if b {
		return one
	}
	return zero
}

func formatUint(n uint64) string { return strconv.FormatUint(n, 10) }

// errQuoting is an error that quotes a word of the client. As in Redis, line breaks are cut off at the
// ends and become blanks inside.
func errQuoting(text string) protocol.Value {
	text = strings.Trim(text, "\r\n")
	return protocol.Err(strings.NewReplacer("\r", " ", "\n", " ").Replace(text))
}
