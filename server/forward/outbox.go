package forward

import (
	"container/heap"
	"encoding/binary"
	"sync"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/peer/wire"
)

const (
	// largeReply is the size from which a reply is sent in parts.
	largeReply = 64 << 10
	// partBytes is the size of a part.
	partBytes = 256 << 10
	// shortBytes bounds the queued short messages beyond which no read is answered. Replies to writes are queued up to
	// twice as many bytes and dropped beyond, as the follower's own log has them.
	shortBytes = 4 << 20
)

// outbox is the queue of one follower's link.
//
// Short messages are encoded at once. A large reply is kept as values, most often strings that it shares with the
// state, and is encoded in parts, each of them sent after all short messages that are queued by then. The large reply
// with the fewest bytes left is sent first, so that no reply waits for a larger one.
type outbox struct {
	limit int // of the bytes of large replies; a single reply may have more
	// roomFreed signals that there may be room for another reply.
	roomFreed chan struct{}

	mu    sync.Mutex
	short []byte // the next frame, with room for the frame's head
	large bySize[*parcel]
	bytes int // total sizes of the replies in large
}

// parcel is a large reply that is queued or partly sent.
type parcel struct {
	kind     byte
	number   uint64
	deadline time.Time // the follower has given up the reply then
	count    int
	encoder  *protocol.ValueEncoder
	size     int // an upper bound of the reply's bytes
	left     int // size, less the bytes of the parts that were sent
}

func (p *parcel) rank() int { return p.left }

func newOutbox(limit int) *outbox {
	return &outbox{limit: limit, roomFreed: make(chan struct{}, 1), short: make([]byte, wire.Head, 4096)}
}

// add appends a short message.
func (o *outbox) add(message func(dst []byte) []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.short = message(o.short)
}

// holds reports whether more than bound bytes of short messages are queued.
func (o *outbox) holds(bound int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.short) > bound
}

// fits reports whether there is room for a reply of that size.
func (o *outbox) fits(size int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.room(size)
}

func (o *outbox) room(size int) bool {
	return size < largeReply || o.bytes == 0 || o.bytes+size <= o.limit
}

// put queues a reply of at most size bytes, and reports whether there was room for it.
func (o *outbox) put(kind byte, number uint64, replies []protocol.Value, size int, deadline time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case !o.room(size):
		return false
	case size < largeReply:
		o.short = appendValues(binary.AppendUvarint(append(o.short, kind), number), replies)
	default:
		o.bytes += size
		heap.Push(&o.large, &parcel{
			kind: kind, number: number, deadline: deadline,
			count: len(replies), encoder: protocol.NewValueEncoder(replies), size: size, left: size,
		})
	}
	return true
}

// take returns the next frame to send, and uses spare for the one after it. more reports that large replies are queued.
func (o *outbox) take(spare []byte) (frame []byte, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	frame, o.short = o.short, spare[:wire.Head]
	freed := len(frame) > shortBytes
	if len(o.large) > 0 {
		p := o.large[0]
		var done bool
		if frame, done = o.part(frame, p); done {
			heap.Pop(&o.large)
			o.bytes -= p.size
			freed = true
		}
	}
	if freed {
		notify(o.roomFreed)
	}
	return frame, len(o.large) > 0
}

// part appends the next part of p, which extends to the end of the frame, and reports whether it was the last.
func (o *outbox) part(frame []byte, p *parcel) (_ []byte, done bool) {
	begun := p.left < p.size
	expired := !time.Now().Before(p.deadline)
	switch {
	case expired && !begun:
		return frame, true
	case expired:
		return binary.AppendUvarint(append(frame, kindPart, p.kind, partDropped), p.number), true
	}
	mark := len(frame)
	frame = binary.AppendUvarint(append(frame, kindPart, p.kind, partMore), p.number)
	start := len(frame)
	if !begun {
		frame = binary.AppendUvarint(frame, uint64(p.count))
	}
	if frame, done = p.encoder.Append(frame, partBytes); done {
		frame[mark+2] = partLast
	}
	p.left = max(p.left-(len(frame)-start), 0)
	return frame, done
}

// ranked is an element of a bySize.
type ranked interface{ rank() int }

// bySize is a heap with the lowest rank first.
type bySize[T ranked] []T

func (h bySize[T]) Len() int           { return len(h) }
func (h bySize[T]) Less(i, j int) bool { return h[i].rank() < h[j].rank() }
func (h bySize[T]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *bySize[T]) Push(x any)        { *h = append(*h, x.(T)) }

func (h *bySize[T]) Pop() any {
	n := len(*h) - 1
	var none T
	x := (*h)[n]
	(*h)[n] = none
	*h = (*h)[:n]
	return x
}
