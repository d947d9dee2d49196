// Package push has the messages that a node sends to clients unasked: what subscribers hear, which
// cached keys have changed, what MONITOR shows.
//
// A [Message] is encoded once, whatever the number of clients that get the message. The clients' side is
// server/frontend/outbox.go.
package push

import (
	"sync/atomic"

	"github.com/holdfast/holdfast/protocol"
)

// Message is a message for clients. It is immutable, and may wait for many clients at a time.
type Message struct {
	// encoded are the bytes for RESP3. In RESP2 a push whose elements are all bulk strings and integers has
	// another first byte, and a simple string has the same bytes; other messages have resp2.
	encoded, resp2 []byte
	holders        atomic.Int64
}

// overhead is the cost of a message beside its bytes.
const overhead = 128

// New is a message; v is immutable, and usually a protocol.Push.
func New(v protocol.Value) *Message {
	m := &Message{encoded: encode(&v, protocol.RESP3)}
	if !flat(&v) {
		m.resp2 = encode(&v, protocol.RESP2)
	}
	return m
}

// NewPair is a message that is v3 in RESP3 and v2 in RESP2.
func NewPair(v3, v2 protocol.Value) *Message {
	return &Message{encoded: encode(&v3, protocol.RESP3), resp2: encode(&v2, protocol.RESP2)}
}

// ForRESP3 is a push of RESP3. A client that speaks RESP2, where a push cannot be told from a reply, gets
// nothing.
func ForRESP3(elems ...protocol.Value) *Message {
	v := protocol.Push(elems...)
	return &Message{encoded: encode(&v, protocol.RESP3), resp2: []byte{}}
}

// encode makes the bytes without room to spare.
func encode(v *protocol.Value, resp int) []byte {
	size, _ := v.SizeWithin(mostBytes)
	return v.AppendTo(make([]byte, 0, size), resp)
}

// mostBytes is more than any message: a command's arguments are bounded by far less.
const mostBytes = 1 << 30

// flat reports whether the two versions of RESP differ in the mark of a push alone.
func flat(v *protocol.Value) bool {
	switch v.Kind {
	case protocol.KindSimple:
		return true
	case protocol.KindPush:
	default:
		return false
	}
	for i := range v.Elems {
		if k := v.Elems[i].Kind; k != protocol.KindBulk && k != protocol.KindInteger {
			return false
		}
	}
	return true
}

// Size is the memory of the message, with everything.
func (m *Message) Size() int { return len(m.encoded) + len(m.resp2) + overhead }

// Len is the number of bytes that a client gets.
func (m *Message) Len(resp int) int {
	if resp < protocol.RESP3 && m.resp2 != nil {
		return len(m.resp2)
	}
	return len(m.encoded)
}

// AppendFrom appends the bytes of the message from an offset on, at most n bytes.
func (m *Message) AppendFrom(dst []byte, resp, from, n int) []byte {
	b := m.encoded
	if resp < protocol.RESP3 && m.resp2 != nil {
		b = m.resp2
	}
	at := len(dst)
	dst = append(dst, b[from:min(len(b), from+n)]...)
	if resp < protocol.RESP3 && from == 0 && len(dst) > at && dst[at] == '>' {
		dst[at] = '*'
	}
	return dst
}

// Hold notes a further holder, and reports whether there was none.
func (m *Message) Hold() (first bool) { return m.holders.Add(1) == 1 }

// Release notes that a holder has let go, and reports whether none is left.
func (m *Message) Release() (last bool) { return m.holders.Add(-1) == 0 }
