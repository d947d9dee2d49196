package protocol

import "bytes"

// inline parses an inline command, a line of words, from the start of buf.
func (r *Reader) inline(buf []byte) (int, error) {
	at := bytes.IndexByte(buf[r.scanned:], '\n')
	if at >= 0 {
		at += r.scanned
	}
	switch {
	case at > r.limits.MaxInlineBytes || at < 0 && len(buf) > r.limits.MaxInlineBytes:
		return 0, errInlineTooBig
	case at < 0:
		r.scanned = len(buf)
		return 0, ErrIncomplete
	}
	line := bytes.TrimSuffix(buf[:at], []byte{'\r'})
	for {
		word, rest, err := splitWord(line)
		if err != nil {
			return 0, err
		}
		if word == nil {
			return at + 1, nil
		}
		if len(r.words) == r.limits.MaxArgs {
			return 0, errMultibulkLength
		}
		r.words = append(r.words, word)
		line = rest
	}
}

// splitWord splits the first word off line by the rules of redis-cli: "double quotes" have the escapes \n \r \t \b \a
// \xHH, and any other escaped byte stands for itself, 'single quotes' have only \', and a closing quote ends the word.
// The word, which is never longer than its source, overwrites the bytes of line. At the end of the line it is nil.
func splitWord(line []byte) (word, rest []byte, err error) {
	line = bytes.TrimLeft(line, " \n\r\t\v\f")
	if len(line) == 0 {
		return nil, nil, nil
	}
	word = line[:0]
	i := 0
	for i < len(line) {
		switch c := line[i]; c {
		case ' ', '\n', '\r', '\t':
			return word[:len(word):len(word)], line[i:], nil
		case '"', '\'':
			return splitQuoted(line, i+1, c, word)
		default:
			word = append(word, c)
			i++
		}
	}
	return word[:len(word):len(word)], nil, nil
}

// splitQuoted splits off the rest of a word whose opening quote is before line[i].
func splitQuoted(line []byte, i int, quote byte, word []byte) (_, rest []byte, err error) {
	for i < len(line) {
		c := line[i]
		switch {
		case c == quote:
			i++
			if i < len(line) && bytes.IndexByte([]byte(" \n\r\t\v\f"), line[i]) < 0 {
				return nil, nil, errUnbalancedQuotes
			}
			return word[:len(word):len(word)], line[i:], nil
		case c == '\\' && quote == '"' && i+1 < len(line):
			c, i = unescape(line, i+1)
		case c == '\\' && quote == '\'' && i+1 < len(line) && line[i+1] == '\'':
			c, i = '\'', i+2
		default:
			i++
		}
		word = append(word, c)
	}
	return nil, nil, errUnbalancedQuotes
}

// unescape returns the byte of the escape after a backslash at line[i-1], and the end of the escape.
func unescape(line []byte, i int) (c byte, next int) {
	switch c = line[i]; c {
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'b':
		c = '\b'
	case 'a':
		c = '\a'
	case 'x':
		if i+2 < len(line) {
			high, low := hexDigit(line[i+1]), hexDigit(line[i+2])
			if high >= 0 && low >= 0 {
				return byte(high<<4 | low), i + 3
			}
		}
	}
	return c, i + 1
}

// hexDigit returns the value of a hexadecimal digit, or -1.
func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
