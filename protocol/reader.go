package protocol

import (
	"bytes"
	"errors"
	"unsafe"
)

// ErrIncomplete is returned by [Reader.Next] when the buffer ends before the command: read more from the
// socket, then call again.
var ErrIncomplete = errors.New("incomplete request")

// Limits bound the memory that one connection can make the server hold.
type Limits struct {
	// MaxArgs is the most words of a command, the name included.
	MaxArgs int
	// MaxBulkBytes is the most bytes of a word.
	MaxBulkBytes int
	// MaxInlineBytes is the most bytes of a line: an inline command, or the number behind a '*' or '$'.
	MaxInlineBytes int
	// MaxQueryBytes is the most bytes of a command on the wire.
	MaxQueryBytes int
	// Unauthenticated is set until AUTH has succeeded. Until then 10 words of 16 KiB are the most, as in
	// Redis.
	Unauthenticated bool
}

// The limits of a client before AUTH, as in Redis.
const (
	unauthenticatedArgs      = 10
	unauthenticatedBulkBytes = 16 << 10
)

// DefaultLimits are the limits without configuration. Redis takes two billion words of 512 MB. Here a
// command becomes part of a log entry, which every node holds in memory and writes to disk while later
// entries wait. 65,536 words are more than any lock library sends, and cost 2.5 MB of slots.
func DefaultLimits() Limits {
	return Limits{
		MaxArgs:        65_536,
		MaxBulkBytes:   8 << 20,
		MaxInlineBytes: 64 << 10,
		MaxQueryBytes:  32 << 20,
	}
}

// keepSlots is the number of slots for words that a Reader keeps from one command to the next.
const keepSlots = 256

// span is the place of a word, from the command's first byte.
type span struct{ start, end int }

// Reader finds the commands in a connection's bytes. The caller owns the buffer, reads from the
// socket into the buffer, calls [Reader.Next] until [ErrIncomplete] comes, and keeps the rest.
//
// Between two commands a Reader holds nothing of the connection (see [Reader.Idle]), and can be pooled
// together with the buffer.
//
// Invariant: every byte is looked at once, in whatever pieces the bytes arrive. The memory is
// proportional to the bytes that have arrived, never to a length that they announce.
type Reader struct {
	limits Limits
	// pos is the first byte of the current command that is not parsed yet. scanned is the number of bytes
	// from there that are known to hold no line end.
	pos, scanned int
	// want is the number of words still missing, 0 between commands; bulk is the
	// length of the word at pos, or -1 before its header has been read.
	want, bulk int
	missing    int
	spans      []span
	words      [][]byte
	failed     error
}

// NewReader returns a Reader.
func NewReader(l Limits) *Reader { return &Reader{limits: l, bulk: -1} }

// Reset makes the Reader as good as new. The memory stays.
func (r *Reader) Reset(l Limits) {
	*r = Reader{limits: l, bulk: -1, spans: r.spans[:0], words: r.words[:0]}
	r.recycle()
}

// SetLimits changes the limits from the next word on: after AUTH, or CONFIG SET.
func (r *Reader) SetLimits(l Limits) { r.limits = l }

// Idle reports whether Next has consumed every byte it has seen.
func (r *Reader) Idle() bool { return r.missing == 0 && r.failed == nil }

// Memory is the size of the slots of words, in bytes.
func (r *Reader) Memory() int {
	return cap(r.spans)*int(unsafe.Sizeof(span{})) + cap(r.words)*int(unsafe.Sizeof([]byte{}))
}

// Missing is a lower bound of the bytes that the current command still needs after [ErrIncomplete]: at
// least 1, and all of a long word once the length is known. The client announced that length, so the
// caller must not allocate it at once.
func (r *Reader) Missing() int { return max(1, r.missing) }

// Next returns the words of the first command in buf and the number of bytes used up. The caller drops
// those bytes in any case. After [ErrIncomplete] the caller calls again with the same remaining bytes
// (which may have moved) and more behind them. Any other error is an *[Error] to be sent as the last
// reply before closing.
//
// The words are slices of buf. The next call reuses the slice that holds them. There is always at least
// one word: empty lines, "*0" and "*-1" are passed over as in Redis. Next removes the quotes of an
// inline command in buf itself. At steady state Next does not allocate.
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

// stop notes why the current command cannot be returned. have is the number of bytes that are there.
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

// recycle forgets the last command, and the slots of a huge one.
func (r *Reader) recycle() {
	r.words = r.words[:0]
	if cap(r.words) > keepSlots {
		r.words = nil
	}
	if r.want == 0 && cap(r.spans) > keepSlots {
		r.spans = nil
	}
}

// command parses one command from the start of buf into r.words and returns the command's size. The next
// call goes on where the last one stopped.
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

// count reads the number of words: "*3\r\n".
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

// word reads the next word: the header, unless it has been read, and the bytes.
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
	// Redis does not look at the two bytes behind a word either.
	r.pos, r.bulk = end+2, -1
	r.want--
	return nil
}

// length reads a word's header: "$3\r\n".
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

// shortLength reads a header of one or two digits, as nearly all words have. size is 0 for any other
// header. A command of five words takes 60 ns with shortLength and 100 ns without.
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

// line returns the bytes between the mark at r.pos and the next CR, and moves behind the CR and the next
// byte, whatever that is.
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
	// A line that begins with the CR has no mark: the number is empty.
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
