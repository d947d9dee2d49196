package resp

import (
	"fmt"

	"github.com/holdfast/holdfast/protocol"
)

// examine refuses a data command that must not reach the log: one whose words
// are too long, or whose Lua source does not compile.
func (c *conn) examine(row *row, words [][]byte) (refusal protocol.Value, refused bool) {
	l := &c.srv.cfg.Limits
	short := min(l.KeyBytes, l.ValueBytes)
	for _, w := range words[row.nameWords:] {
		if len(w) > short {
			refusal, refused = tooLong(row, words, l)
			break
		}
	}
	if refused || row.source == 0 {
		return refusal, refused
	}
	return c.examineScript(row, words)
}

// tooLong tells keys from values, which not many command lines are worth.
func tooLong(row *row, words [][]byte, l *Limits) (protocol.Value, bool) {
	isKey := make([]bool, len(words))
	// A line whose keys cannot be told is the state machine's to refuse.
	positions, _ := row.KeyPositions(words)
	for _, p := range positions {
		isKey[p] = true
	}
	for i, w := range words {
		if isKey[i] && len(w) > l.KeyBytes {
			return protocol.Err(fmt.Sprintf("key exceeds maximum allowed size (%d bytes)", l.KeyBytes)), true
		}
		if len(w) > l.ValueBytes {
			return protocol.Err("string exceeds maximum allowed size (proto-max-bulk-len)"), true
		}
	}
	return protocol.Value{}, false
}

// examineScript compiles the Lua source of EVAL and SCRIPT LOAD on this node, so
// that what does not compile costs nobody else anything. Redis looks at EVAL's
// number of keys first.
func (c *conn) examineScript(row *row, words [][]byte) (protocol.Value, bool) {
	if row.nameWords == 1 {
		n, ok := protocol.ParseInt(string(words[2]))
		switch {
		case !ok:
			return protocol.Err("value is not an integer or out of range"), true
		case n > int64(len(words)-3):
			return protocol.Err("Number of keys can't be greater than number of args"), true
		case n < 0:
			return protocol.Err("Number of keys can't be negative"), true
		}
	}
	if err := c.srv.scripts.check(words[row.source]); err != nil {
		return protocol.ErrValue(err.Error()), true
	}
	return protocol.Value{}, false
}
