package protocol

import (
	"bytes"
	"errors"
	"unsafe"
)

// ErrIncomplete is the error of [Reader.Next] if the buffer ends before the command. The caller reads more, and calls
// again.
var ErrIncomplete = errors.New("incomplete request")

// Limits bounds the memory that one connection can use.
type Limits struct {
	// MaxArgs bounds the words of a command, including the name.
	MaxArgs int
	// MaxBulkBytes bounds the bytes of a word.
	MaxBulkBytes int
	// MaxInlineBytes bounds the bytes of a line: an inline command, or the number after a '*' or '$'.
	MaxInlineBytes int
	// MaxQueryBytes bounds the bytes of a command on the wire.
	MaxQueryBytes int
	// Unauthenticated is set until AUTH has succeeded. As in Redis, a command then has at most 10 words of 16 KiB.
	Unauthenticated bool
}

// The limits of a client before AUTH, as in Redis.
const (
	unauthenticatedArgs      = 10
	unauthenticatedBulkBytes = 16 << 10
)

// DefaultLimits returns the default limits. Redis accepts two billion words of 512 MB. Here a command is part of a log
// entry, which every node has in memory and writes to disk while later entries wait. 65,536 words are more than any
// lock library sends, and use 2.5 MB of slots.
func DefaultLimits() Limits {
	return Limits{
		MaxArgs:        65_536,
		MaxBulkBytes:   8 << 20,
		MaxInlineBytes: 64 << 10,
		MaxQueryBytes:  32 << 20,
	}
}

// keepSlots bounds the slots for words that a Reader keeps between commands.
const keepSlots = 256

// span is the position of a word, from the command's first byte.
type span struct{ start, end int }

// Reader splits a connection's bytes into commands. The caller owns the buffer, reads from the socket into it, calls
// [Reader.Next] until [ErrIncomplete], and keeps the rest.
//
// Between two commands a Reader has no state of the connection (see [Reader.Idle]), and can be pooled together with the
// buffer.
//
// Invariant: every byte is read once, in whatever pieces the bytes arrive. The memory is proportional to the bytes that
// have arrived, and not to the lengths that they announce.
type Reader struct {
	limits Limits
	// pos is the first byte of the current command that is not parsed yet. scanned is the number of bytes after it that
	// surely have no line end.
	pos, scanned int
	// want is the number of missing words, or 0 between commands. bulk is the length of the word at pos, or -1 before its
	// header was read.
	want, bulk int
	missing    int
	spans      []span
	words      [][]byte
	failed     error
}

// NewReader returns a Reader.
func NewReader(l Limits) *Reader { return &Reader{limits: l, bulk: -1} }

// Reset resets the Reader, and keeps its memory.
func (r *Reader) Reset(l Limits) {
	clear(r.words)
	*r = Reader{limits: l, bulk: -1, spans: r.spans[:0], words: r.words[:0]}
	r.recycle()
}

// SetLimits changes the limits from the next word on, for AUTH or CONFIG SET.
func (r *Reader) SetLimits(l Limits) { r.limits = l }

// Idle reports whether Next has consumed all bytes that it was given.
func (r *Reader) Idle() bool { return r.missing == 0 && r.failed == nil }

// Memory returns the size of the slots of words, in bytes.
func (r *Reader) Memory() int {
	return cap(r.spans)*int(unsafe.Sizeof(span{})) + cap(r.words)*int(unsafe.Sizeof([]byte{}))
}

// Missing returns a lower bound of the bytes that the current command needs after [ErrIncomplete]: at least 1, and the
// rest of a long word once its length is known. The client has announced that length, so the caller must not allocate
// it at once.
func (r *Reader) Missing() int { return max(1, r.missing) }

// Next returns the words of the first command in buf, and the number of consumed bytes, which the caller drops in any
// case. After [ErrIncomplete] the caller calls again with the same remaining bytes (which may have moved) and more
// after them. Any other error is an *[Error], which the caller sends as the last reply before it closes the connection.
//
// The words are slices of buf, and the next call reuses the slice that has them. There is at least one word: as in
// Redis, empty lines, "*0" and "*-1" are skipped. Next removes the quotes of an inline command in buf itself. In a
// steady state it does not allocate.
func (r *Reader) Next(buf []byte) (words [][]byte, consumed int, err error) {
	if r.failed != nil {
		return nil, 0, r.failed
	}
	r.recycle()
	for consumed < len(buf) {
		n, err := r.command(buf[consumed:])
		if n > r.limits.MaxQueryBytes {
			err = ErrQueryTooBig
		}
		if err != nil {
			return nil, consumed, r.stop(err, len(buf)-consumed)
		}
		consumed += n
		r.pos, r.scanned = 0, 0
		if len(r.words) > 0 {
			r.missing = 0
			return r.words, consumed, nil
		}
	}
	r.missing = 0
	return nil, consumed, ErrIncomplete
}

// stop stores why the current command cannot be returned. have is the number of bytes that have arrived.
func (r *Reader) stop(err error, have int) error {
	r.missing = 1
	if err == ErrIncomplete {
		if r.want > 0 && r.bulk >= 0 {
			r.missing = r.pos + r.bulk + 2 - have
		}
		if have+r.missing <= r.limits.MaxQueryBytes {
			return err
		}
		err = ErrQueryTooBig
	}
	r.failed = err
	return err
}

// recycle drops the last command, so that its buffer can be collected, and the slots of a huge one.
func (r *Reader) recycle() {
	clear(r.words)
	r.words = r.words[:0]
	if cap(r.words) > keepSlots {
		r.words = nil
	}
	if r.want == 0 && cap(r.spans) > keepSlots {
		r.spans = nil
	}
}

// command parses one command from the start of buf into r.words, and returns its size. The next call continues where
// the last one stopped.
func (r *Reader) command(buf []byte) (int, error) {
	if r.want == 0 {
		if buf[0] != '*' {
			return r.inline(buf)
		}
		n, err := r.count(buf)
		if err != nil {
			return 0, err
		}
		if n <= 0 {
			return r.pos, nil
		}
		r.want, r.bulk, r.spans = n, -1, r.spans[:0]
	}
	for r.want > 0 {
		if err := r.word(buf); err != nil {
			return 0, err
		}
	}
	for _, s := range r.spans {
		r.words = append(r.words, buf[s.start:s.end:s.end])
	}
	return r.pos, nil
}

// count parses the number of words: "*3\r\n".
func (r *Reader) count(buf []byte) (int, error) {
	text, err := r.line(buf, errMultibulkLine)
	if err != nil {
		return 0, err
	}
	n, ok := parseLength(text)
	switch {
	case !ok || n > int64(r.limits.MaxArgs):
		return 0, errMultibulkLength
	case n > unauthenticatedArgs && r.limits.Unauthenticated:
		return 0, errMultibulkUnauthenticated
	}
	return int(max(n, 0)), nil
}

// word parses the next word: its header, unless that was parsed, and its bytes.
func (r *Reader) word(buf []byte) error {
	if r.bulk < 0 {
		n, err := r.length(buf)
		if err != nil {
			return err
		}
		r.bulk = n
	}
	end := r.pos + r.bulk
	if end+2 > len(buf) {
		return ErrIncomplete
	}
	r.spans = append(r.spans, span{start: r.pos, end: end})
	// Redis does not check the two bytes after a word either.
	r.pos, r.bulk = end+2, -1
	r.want--
	return nil
}

// length parses a word's header: "$3\r\n".
func (r *Reader) length(buf []byte) (int, error) {
	mark := r.pos
	if n, size := shortLength(buf[mark:]); size > 0 && n <= r.limits.MaxBulkBytes {
		r.pos, r.scanned = mark+size, 0
		return n, nil
	}
	text, err := r.line(buf, errBulkLine)
	if err != nil {
		return 0, err
	}
	if buf[mark] != '$' {
		return 0, errExpectedDollar(buf[mark])
	}
	n, ok := parseLength(text)
	switch {
	case !ok || n < 0 || n > int64(r.limits.MaxBulkBytes):
		return 0, errBulkLength
	case n > unauthenticatedBulkBytes && r.limits.Unauthenticated:
		return 0, errBulkUnauthenticated
	}
	return int(n), nil
}

// shortLength parses a header of one or two digits, which almost all words have. size is 0 for any other header. A
// command of five words takes 60 ns with shortLength and 100 ns without.
func shortLength(b []byte) (n, size int) {
	if len(b) < 5 || b[0] != '$' {
		return 0, 0
	}
	tens, ones := b[1]-'0', b[2]-'0'
	switch {
	case tens <= 9 && b[2] == '\r':
		return int(tens), 4
	case tens >= 1 && tens <= 9 && ones <= 9 && b[3] == '\r':
		return int(tens)*10 + int(ones), 5
	}
	return 0, 0
}

// line returns the bytes between the mark at r.pos and the next CR, and moves r.pos after the CR and the next byte,
// whatever that is.
func (r *Reader) line(buf []byte, tooLong *Error) ([]byte, error) {
	rest := buf[r.pos:]
	at := bytes.IndexByte(rest[r.scanned:], '\r')
	if at >= 0 {
		at += r.scanned
	}
	switch {
	case at > r.limits.MaxInlineBytes || at < 0 && len(rest) > r.limits.MaxInlineBytes:
		return nil, tooLong
	case at < 0:
		r.scanned = len(rest)
		return nil, ErrIncomplete
	case at+2 > len(rest):
		r.scanned = at
		return nil, ErrIncomplete
	}
	r.pos, r.scanned = r.pos+at+2, 0
	// A line that begins with the CR has no mark, so the number is empty.
	return rest[min(1, at):at], nil
}

// parseLength is [ParseInt] for the bytes of a header.
func parseLength(text []byte) (int64, bool) {
	if len(text) == 0 || len(text) > 9 || text[0] < '1' || text[0] > '9' {
		return ParseInt(string(text))
	}
	var n int64
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}
