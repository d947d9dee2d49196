package protocol

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// ReplyLimits bounds the memory and the depth of a reply.
type ReplyLimits struct {
	// MaxBytes bounds the memory of a reply, approximately.
	MaxBytes int
	// MaxDepth bounds the nesting of aggregates.
	MaxDepth int
}

// DefaultReplyLimits returns limits with room for the reply to KEYS * with some million keys. Replies of Redis and
// Holdfast are nested a dozen deep, replies of scripts a hundred.
func DefaultReplyLimits() ReplyLimits { return ReplyLimits{MaxBytes: 512 << 20, MaxDepth: 256} }

var (
	// ErrCorruptReply is returned for bytes that are not RESP2 or RESP3.
	ErrCorruptReply = errors.New("corrupt reply")
	// ErrReplyTooBig is returned for a reply above the limits.
	ErrReplyTooBig = errors.New("reply too big")
)

const (
	// valueBytes is the memory of an element beyond its text.
	valueBytes = 64
	// firstSlots bounds the elements that are allocated before they arrive.
	firstSlots = 64
	// firstBytes bounds the bytes of a string that are allocated before they arrive.
	firstBytes = 64 << 10
)

// ReadValue reads one reply of either RESP version, within [DefaultReplyLimits]. The error is io.EOF if r ends before
// the first byte, and io.ErrUnexpectedEOF if it ends later. ReadValue drops attributes and the formats of verbatim
// strings. Streamed strings and aggregates, which no server sends, are corrupt.
func ReadValue(r *bufio.Reader) (Value, error) { return DefaultReplyLimits().Read(r) }

// Read is [ReadValue] within l.
func (l ReplyLimits) Read(r *bufio.Reader) (Value, error) {
	if _, err := r.Peek(1); err != nil {
		return Value{}, err
	}
	p := replyReader{r: r, budget: l.MaxBytes}
	v, err := p.value(l.MaxDepth)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return v, err
}

// oneLine replaces line ends in a text by blanks, as Redis does in errors.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

// replyReader reads one reply. budget is the remaining memory.
type replyReader struct {
	r      *bufio.Reader
	budget int
}

func (p *replyReader) value(depth int) (Value, error) {
	for {
		mark, text, err := p.line()
		if err != nil {
			return Value{}, err
		}
		if mark == '|' {
			// An attribute precedes the value.
			if _, err := p.aggregate(KindMap, text, depth); err != nil {
				return Value{}, err
			}
			continue
		}
		return p.rest(mark, text, depth)
	}
}

// rest reads the rest of a value after its first line.
func (p *replyReader) rest(mark byte, text []byte, depth int) (Value, error) {
	switch mark {
	case '+':
		if string(text) == "OK" {
			return OK, nil
		}
		return Simple(string(text)), nil
	case '-':
		return ErrValue(string(text)), nil
	case ':':
		n, ok := ParseInt(string(text))
		return Integer(n), check(ok, mark, text)
	case '$':
		if string(text) == "-1" {
			return Null, nil
		}
		return p.bulk(KindBulk, mark, text)
	case '!':
		v, err := p.bulk(KindError, mark, text)
		v.Str = oneLine.Replace(v.Str)
		return v, err
	case '=':
		v, err := p.bulk(KindVerbatim, mark, text)
		if err == nil && (len(v.Str) < 4 || v.Str[3] != ':') {
			return Value{}, check(false, mark, text)
		}
		v.Str = v.Str[min(4, len(v.Str)):]
		return v, err
	case '*':
		if string(text) == "-1" {
			return NullArray, nil
		}
		return p.aggregate(KindArray, text, depth)
	case '%':
		return p.aggregate(KindMap, text, depth)
	case '~':
		return p.aggregate(KindSet, text, depth)
	case '>':
		return p.aggregate(KindPush, text, depth)
	}
	return scalar3(mark, text)
}

// scalar3 parses the scalars that only RESP3 has.
func scalar3(mark byte, text []byte) (Value, error) {
	switch mark {
	case '_':
		return Null, check(len(text) == 0, mark, text)
	case '#':
		yes := string(text) == "t"
		return Bool(yes), check(yes || string(text) == "f", mark, text)
	case ',':
		f, err := parseDouble(string(text))
		return Double(f), check(err == nil, mark, text)
	case '(':
		digits := strings.TrimLeft(strings.TrimPrefix(string(text), "-"), "0123456789")
		return BigNumber(string(text)), check(digits == "" && len(text) > 0 && string(text) != "-", mark, text)
	}
	return Value{}, check(false, mark, text)
}

// parseDouble parses the form of [FormatDouble], and a signed nan, as C may write it.
func parseDouble(s string) (float64, error) {
	if s == "-nan" {
		return math.NaN(), nil
	}
	return strconv.ParseFloat(s, 64)
}

func check(ok bool, mark byte, text []byte) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%w: %q", ErrCorruptReply, append([]byte{mark}, text[:min(len(text), 40)]...))
}

// line reads a line. The text is valid until the next read.
func (p *replyReader) line() (mark byte, text []byte, err error) {
	line, err := p.r.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		line, err = p.longLine(bytes.Clone(line))
	}
	if err != nil {
		return 0, nil, err
	}
	if err := p.spend(valueBytes + len(line)); err != nil {
		return 0, nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return 0, nil, fmt.Errorf("%w: %.40q", ErrCorruptReply, line)
	}
	return line[0], line[1 : len(line)-2], nil
}

// longLine reads the rest of a line that exceeds the buffer of r.
func (p *replyReader) longLine(line []byte) ([]byte, error) {
	for {
		more, err := p.r.ReadSlice('\n')
		line = append(line, more...)
		switch {
		case err != bufio.ErrBufferFull:
			return line, err
		case len(line) > p.budget:
			return nil, ErrReplyTooBig
		}
	}
}

func (p *replyReader) spend(n int) error {
	p.budget -= n
	if p.budget < 0 {
		return ErrReplyTooBig
	}
	return nil
}

// count parses the number in the first line of an aggregate or a string.
func count(mark byte, text []byte) (int, error) {
	n, ok := parseLength(text)
	if !ok || n < 0 {
		return 0, check(false, mark, text)
	}
	if n > math.MaxInt32 {
		return 0, ErrReplyTooBig
	}
	return int(n), nil
}

func (p *replyReader) bulk(kind Kind, mark byte, text []byte) (Value, error) {
	n, err := count(mark, text)
	if err != nil {
		return Value{}, err
	}
	if err := p.spend(n); err != nil {
		return Value{}, err
	}
	v := Value{Kind: kind}
	if v.Str, err = p.take(n); err != nil {
		return Value{}, err
	}
	var end [2]byte
	if _, err := io.ReadFull(p.r, end[:]); err != nil {
		return Value{}, err
	}
	if string(end[:]) != "\r\n" {
		return Value{}, fmt.Errorf("%w: %q where a string of %d bytes should end", ErrCorruptReply, end[:], n)
	}
	return v, nil
}

// take reads n bytes, and allocates as they arrive.
func (p *replyReader) take(n int) (string, error) {
	var b strings.Builder
	b.Grow(min(n, firstBytes))
	for b.Len() < n {
		peeked, err := p.r.Peek(min(n-b.Len(), max(1, p.r.Buffered())))
		if err != nil {
			return "", err
		}
		b.Write(peeked)
		if _, err := p.r.Discard(len(peeked)); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

func (p *replyReader) aggregate(kind Kind, text []byte, depth int) (Value, error) {
	n, err := count('*', text)
	if err != nil {
		return Value{}, err
	}
	if depth <= 0 {
		return Value{}, fmt.Errorf("%w: it nests too deep", ErrReplyTooBig)
	}
	if kind == KindMap {
		n *= 2
	}
	v := Value{Kind: kind, Elems: make([]Value, 0, min(n, firstSlots))}
	for range n {
		e, err := p.value(depth - 1)
		if err != nil {
			return Value{}, err
		}
		v.Elems = append(v.Elems, e)
	}
	return v, nil
}

// BodyLen returns the length of the first n requests of a batch's body. It is the whole length if there
// are no more requests, or if the body is corrupt.
func BodyLen(body []byte, n int) int {
	rest, ok := body, true
	for ; n > 0 && len(rest) > 0; n-- {
		if rest, ok = skipRequest(rest); !ok {
			return len(body)
		}
	}
	return len(body) - len(rest)
}

// skipRequest returns the bytes after the first request.
func skipRequest(body []byte) (rest []byte, ok bool) {
	db, body, ok := uvarint(body)
	if ok && db == ofUser {
		if _, body, ok = cutQuota(body); ok {
			db, body, ok = uvarint(body)
		}
	}
	if ok && db&fromConn != 0 {
		_, body, ok = uvarint(body)
	}
	if ok && db&withUser != 0 {
		if _, body, ok = str(body); ok {
			_, body, ok = str(body)
		}
	}
	if !ok {
		return nil, false
	}
	words, body, ok := uvarint(body)
	for ; ok && words > 0; words-- {
		_, body, ok = str(body)
	}
	return body, ok
}
