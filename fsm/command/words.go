package command

import (
	"math"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// Replies of many commands.
var (
	ErrSyntax      = protocol.ErrSyntax.Value()
	ErrNotInteger  = protocol.ErrNotInteger.Value()
	ErrNotPositive = protocol.Err("value is out of range, must be positive")
	ErrNumKeys     = protocol.Err("numkeys should be greater than 0")
	ErrNotFloat    = protocol.ErrNotFloat.Value()
	ErrNoSuchKey   = protocol.ErrNoSuchKey.Value()
	ErrSameObject  = protocol.Err("source and destination objects are the same")
	ErrDBRange     = protocol.ErrDBIndex.Value()
	ErrWrongType   = protocol.ErrWrongType.Value()
	ErrTooLong     = protocol.ErrStringTooBig.Value()

	Zero = protocol.Integer(0)
	One  = protocol.Integer(1)
)

// ErrExpireTime returns the error for an invalid duration or instant.
func ErrExpireTime(name string) protocol.Value { return protocol.InvalidExpire(name).Value() }

// IsWord reports whether s is word in any case. word is upper-case ASCII. [strings.EqualFold] would accept the Kelvin
// sign for a K.
func IsWord(s, word string) bool {
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

// Boolean returns the integer 1 or 0.
func Boolean(b bool) protocol.Value {
	if b {
		return One
	}
	return Zero
}

func FormatUint(n uint64) string { return strconv.FormatUint(n, 10) }

// ErrQuoting returns an error that quotes a word of the client. As in Redis, line breaks are removed at the ends, and
// replaced by blanks inside.
func ErrQuoting(text string) protocol.Value {
	text = strings.Trim(text, "\r\n")
	return protocol.Err(strings.NewReplacer("\r", " ", "\n", " ").Replace(text))
}

// MaxValueBytes bounds the length of a value. All nodes must have the same bound, so it is no option.
const MaxValueBytes = 32 << 20

func TooLong(value string) bool { return len(value) > MaxValueBytes }

func ErrArity(name string) protocol.Value {
	return ErrQuoting("wrong number of arguments for '" + Cut(name) + "' command")
}

// Cut shortens a word for an error.
func Cut(word string) string { return word[:min(len(word), 128)] }

// ParseIndexes parses two indexes.
func ParseIndexes(first, last string) (a, b int64, ok bool) {
	a, ok1 := protocol.ParseInt(first)
	b, ok2 := protocol.ParseInt(last)
	return a, b, ok1 && ok2
}

// ByteRange is [ElementRange] for the bytes of a string: a last index before the first byte means the first byte.
func ByteRange(first, last int64, n int) (from, to int) {
	return ElementRange(first, max(last, -int64(n)), n)
}

// ParseInt32 parses an int of C.
func ParseInt32(word string) (n int64, ok bool) {
	n, ok = protocol.ParseInt(word)
	return n, ok && n >= math.MinInt32 && n <= math.MaxInt32
}

// ElementRange converts a first and a last index, which may count from the end, to a range of n elements: from
// inclusive, to exclusive.
func ElementRange(first, last int64, n int) (from, to int) {
	if first < 0 {
		first = max(0, first+int64(n))
	}
	if last < 0 {
		last += int64(n)
	}
	if first > last || first >= int64(n) {
		return 0, 0
	}
	return int(first), int(min(last, int64(n)-1)) + 1
}
