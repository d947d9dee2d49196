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

// Message is a message for clients. It is immutable, and may be in the outboxes of many clients.
type Message struct {
	// encoded has the bytes for RESP3. In RESP2, a push of bulk strings and integers has only another first byte, and a
	// simple string the same bytes. For all other messages resp2 has the bytes.
	encoded, resp2 []byte
	holders        atomic.Int64
}

// overhead is the memory of a message beyond its bytes.
const overhead = 128

// New returns a message. v is immutable, and usually a protocol.Push.
func New(v protocol.Value) *Message {
	m := &Message{encoded: encode(&v, protocol.RESP3)}
	if !flat(&v) {
		m.resp2 = encode(&v, protocol.RESP2)
	}
	return m
}

// NewPair returns a message that is v3 in RESP3 and v2 in RESP2.
func NewPair(v3, v2 protocol.Value) *Message {
	return &Message{encoded: encode(&v3, protocol.RESP3), resp2: encode(&v2, protocol.RESP2)}
}

// ForRESP3 returns a push for RESP3. A client of RESP2, which could not tell it from a reply, gets nothing.
func ForRESP3(elems ...protocol.Value) *Message {
	v := protocol.Push(elems...)
	return &Message{encoded: encode(&v, protocol.RESP3), resp2: []byte{}}
}

// encode returns the bytes in a slice without spare capacity.
func encode(v *protocol.Value, resp int) []byte {
	size, _ := v.SizeWithin(maxMessageBytes)
	return v.AppendTo(make([]byte, 0, size), resp)
}

// maxMessageBytes is more than any message has, since the limit of a command's arguments is far lower.
const maxMessageBytes = 1 << 30

// flat reports whether v differs between the versions of RESP only in its first byte.
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

// Size returns the memory of the message.
func (m *Message) Size() int { return len(m.encoded) + len(m.resp2) + overhead }

// Len returns the number of bytes that a client gets.
func (m *Message) Len(resp int) int {
	if resp < protocol.RESP3 && m.resp2 != nil {
		return len(m.resp2)
	}
	return len(m.encoded)
}

// AppendFrom appends at most n bytes of the message, from an offset on.
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

// Hold adds a holder, and reports whether there was none.
func (m *Message) Hold() (first bool) { return m.holders.Add(1) == 1 }

// Release removes a holder, and reports whether none is left.
func (m *Message) Release() (last bool) { return m.holders.Add(-1) == 0 }
