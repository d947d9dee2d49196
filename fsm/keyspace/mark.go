package keyspace

import "encoding/binary"

// Mark marks an item as a stock lock, and describes its holder. It follows the value in the string of the item, so a
// mark needs no allocation, and an item without a mark no memory.
type Mark struct {
	// SinceMillis is the instant of cluster time at which the item was created.
	SinceMillis int64
	// LeaseMillis is the last ttl of the item, or 0.
	LeaseMillis int64
	// Incarnation is the owner's number of an incarnation of a node, and Conn the number of a connection of that
	// incarnation. They are 0 if unknown.
	Incarnation, Conn uint64
	// Renewals counts the later deadlines of the item.
	Renewals uint64
}

// marked replaces the encoding in the head of an item with a mark. The encoding of such an item is [EncodingAuto].
const marked = EncodingCount

// maxMarkBytes bounds the bytes of a mark, including its length.
const maxMarkBytes = 5*binary.MaxVarintLen64 + 1

// appendMark appends a mark and its length.
func appendMark(dst []byte, m *Mark) []byte {
	from := len(dst)
	dst = binary.AppendUvarint(dst, uint64(m.SinceMillis))
	dst = binary.AppendUvarint(dst, uint64(m.LeaseMillis))
	dst = binary.AppendUvarint(dst, m.Incarnation)
	dst = binary.AppendUvarint(dst, m.Conn)
	dst = binary.AppendUvarint(dst, m.Renewals)
	return append(dst, byte(len(dst)-from+1))
}

// NewMarked is [NewItem] with a mark.
func NewMarked(hash uint64, key, value string, deadlineMillis int64, m Mark) Item {
	return Item{data: joinMarked(key, value, &m), Hash: hash, DeadlineMillis: deadlineMillis}
}

func joinMarked(key, value string, m *Mark) string {
	var room [maxMarkBytes]byte
	tail := appendMark(room[:0], m)
	head := uint(len(key))<<encodingBits | uint(marked)
	if head < oneByte {
		return heads[head:head+1] + key + value + string(tail)
	}
	return string(binary.AppendUvarint(nil, uint64(head))) + key + value + string(tail)
}

// IsMarked reports whether the item has a mark.
func (it *Item) IsMarked() bool {
	return it.data != "" && it.data[0]&(1<<encodingBits-1) == byte(marked)
}

// Mark returns the item's mark, if it has one.
func (it *Item) Mark() (m Mark, ok bool) {
	if !it.IsMarked() {
		return m, false
	}
	tail := it.data[len(it.data)-it.tailLen() : len(it.data)-1]
	next := func() (n uint64) {
		for i := 0; ; i++ {
			c := tail[i]
			n |= uint64(c&(oneByte-1)) << (7 * i)
			if c < oneByte {
				tail = tail[i+1:]
				return n
			}
		}
	}
	m.SinceMillis, m.LeaseMillis = int64(next()), int64(next())
	m.Incarnation, m.Conn, m.Renewals = next(), next(), next()
	return m, true
}

// tailLen returns the length of the mark, or 0 without one.
func (it *Item) tailLen() int {
	if !it.IsMarked() {
		return 0
	}
	return int(it.data[len(it.data)-1])
}

// WithMark returns the item with a mark in place of its own.
func (it *Item) WithMark(m Mark) Item {
	next := *it
	next.data = joinMarked(it.Key(), it.Value(), &m)
	return next
}
