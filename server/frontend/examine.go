package frontend

import (
	"fmt"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// examine returns why a data command must not reach the log: its words are too
// long, or its Lua source does not compile. It returns nil if it may.
func (c *conn) examine(row *row, words [][]byte) *protocol.Error {
	l := &c.srv.cfg.Limits
	short := min(l.MaxKeyBytes, l.MaxValueBytes)
	for _, w := range words[row.nameWords:] {
		if len(w) > short {
			if refusal := tooLong(row, words, l); refusal != nil {
				return refusal
			}
			break
		}
	}
	if row.source == 0 {
		return nil
	}
	return c.examineScript(row, words)
}

// tooLong tells keys from values, which not many command lines are worth.
func tooLong(row *row, words [][]byte, l *Limits) *protocol.Error {
	isKey := make([]bool, len(words))
	// A line whose keys cannot be told is the state machine's to refuse.
	positions, _ := row.KeyPositions(words)
	for _, p := range positions {
		isKey[p] = true
	}
	for i, w := range words {
		if isKey[i] && len(w) > l.MaxKeyBytes {
			return refusal(fmt.Sprintf("key exceeds maximum allowed size (%d bytes)", l.MaxKeyBytes))
		}
		if len(w) > l.MaxValueBytes {
			return protocol.ErrStringTooBig
		}
	}
	return nil
}

// examineScript compiles the Lua source of EVAL and SCRIPT LOAD on this node, so
// that what does not compile costs nobody else anything. Redis looks at EVAL's
// number of keys first.
func (c *conn) examineScript(row *row, words [][]byte) *protocol.Error {
	if row.nameWords == 1 {
		n, ok := protocol.ParseInt(string(words[2]))
		switch {
		case !ok:
			return protocol.ErrNotInteger
		case n > int64(len(words)-3):
			return refusal("Number of keys can't be greater than number of args")
		case n < 0:
			return refusal("Number of keys can't be negative")
		}
	}
	if err := c.srv.scripts.check(words[row.source]); err != nil {
		prefix, text, _ := strings.Cut(err.Error(), " ")
		return &protocol.Error{Prefix: prefix, Text: text}
	}
	return nil
}

// refusal is a row of this package's own: with prefix ERR, surely not applied.
func refusal(text string) *protocol.Error { return &protocol.Error{Prefix: "ERR", Text: text} }
