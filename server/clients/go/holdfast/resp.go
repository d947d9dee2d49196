package holdfast

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// value is a RESP3 value of the kinds that nodes send to this client.
type value struct {
	kind  byte // the type's first byte on the wire; maps, sets and pushes have elems as arrays do
	text  string
	num   int64
	elems []value
}

func (v value) isError() bool { return v.kind == '-' || v.kind == '!' }
func (v value) isNull() bool  { return v.kind == '_' }
func (v value) isPush() bool  { return v.kind == '>' }

// word returns an integer or a string as text.
func (v value) word() string {
	if v.kind == ':' {
		return strconv.FormatInt(v.num, 10)
	}
	return v.text
}

// field returns the value that a map has for name; null if it has none.
func (v value) field(name string) value {
	for i := 0; i+1 < len(v.elems); i += 2 {
		if v.elems[i].text == name {
			return v.elems[i+1]
		}
	}
	return value{kind: '_'}
}

// appendCommand appends a command as an array of bulk strings.
func appendCommand(b []byte, words []string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(words))
	for _, w := range words {
		b = fmt.Appendf(b, "$%d\r\n", len(w))
		b = append(append(b, w...), '\r', '\n')
	}
	return b
}

// Bounds of one reply. The largest that the client asks for is LOCK.INFO with 1,000 holders and 1,000 waiters.
const (
	maxDepth = 8
	maxElems = 1 << 16
	maxText  = 1 << 20
)

var errProtocol = errors.New("the node's reply is not RESP3")

// readValue reads one value. The error is the connection's, or errProtocol.
func readValue(r *bufio.Reader, depth int) (value, error) {
	line, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return value{}, errProtocol
	case err != nil:
		return value{}, err
	case len(line) < 3 || line[len(line)-2] != '\r' || depth > maxDepth:
		return value{}, errProtocol
	}
	v := value{kind: line[0], text: string(line[1 : len(line)-2])}
	switch v.kind {
	case '+', '-', ',', '#', '(':
	case '_':
		v.text = ""
	case ':':
		if v.num, err = strconv.ParseInt(v.text, 10, 64); err != nil {
			return value{}, errProtocol
		}
	case '$', '!', '=':
		err = v.readText(r)
	case '*', '~', '>':
		err = v.readElems(r, 1, depth)
	case '%':
		err = v.readElems(r, 2, depth)
	default:
		return value{}, errProtocol
	}
	return v, err
}

// length parses the length that a value begins with. A negative one makes the value null.
func (v *value) length(most int) (int, error) {
	n, err := strconv.ParseInt(v.text, 10, 64)
	v.text = ""
	switch {
	case err != nil || n > int64(most) || n < math.MinInt32:
		return 0, errProtocol
	case n < 0:
		v.kind = '_'
	}
	return int(n), nil
}

func (v *value) readText(r *bufio.Reader) error {
	n, err := v.length(maxText)
	if err != nil || v.isNull() {
		return err
	}
	b := make([]byte, n+2)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	if b[n] != '\r' || b[n+1] != '\n' {
		return errProtocol
	}
	v.text = string(b[:n])
	return nil
}

func (v *value) readElems(r *bufio.Reader, each, depth int) error {
	n, err := v.length(maxElems)
	if err != nil || v.isNull() {
		return err
	}
	for range n * each {
		elem, err := readValue(r, depth+1)
		if err != nil {
			return err
		}
		v.elems = append(v.elems, elem)
	}
	return nil
}
