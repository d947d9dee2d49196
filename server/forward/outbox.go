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
	// largeReply is how many bytes a reply has at least that is sent in parts.
	largeReply = 64 << 10
	// partBytes is how long a part is.
	partBytes = 256 << 10
	// shortBytes is how many bytes of short messages may wait before no more reads are answered.
	// With replies to writes the sum may be twice as much; then such replies are left out, as the
	// follower has them in its own log.
	shortBytes = 4 << 20
)

// outbox is what waits to be sent over one follower's link.
//
// Short messages become bytes at once. A large reply stays values, most often strings shared with
// the state. The reply becomes bytes a part at a time, each behind every short message that is
// there by then. Among large replies the one with the least left goes first: no reply waits for a
// larger one.
type outbox struct {
	limit int // of large replies; a single reply may have more
	// eased is told when something that was in the way of a reply is gone.
	eased chan struct{}

	mu    sync.Mutex
	short []byte // the next frame, with room for the frame's head
	large bySize[*parcel]
	bytes int // of large replies, each whole until it is gone
}

// parcel is a large reply on the way.
type parcel struct {
	kind     byte
	number   uint64
	deadline time.Time // the end of waiting for the reply
	count    int
	encoder  *protocol.ValueEncoder
	size     int // a bound of the reply's bytes
	left     int
}

func (p *parcel) rank() int { return p.left }

func newOutbox(limit int) *outbox {
	return &outbox{limit: limit, eased: make(chan struct{}, 1), short: make([]byte, wire.Head, 4096)}
}

// add appends a short message.
func (o *outbox) add(message func(dst []byte) []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.short = message(o.short)
}

// holds reports whether more than bound bytes wait that are short.
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

// put appends a reply of at most size bytes, and reports whether there was room for it.
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

// take returns the next frame to send, and uses spare for the frame after it. More is set when
// something waits for that frame already.
func (o *outbox) take(spare []byte) (frame []byte, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	frame, o.short = o.short, spare[:wire.Head]
	eased := len(frame) > shortBytes
	if len(o.large) > 0 {
		p := o.large[0]
		var done bool
		if frame, done = o.part(frame, p); done {
			heap.Pop(&o.large)
			o.bytes -= p.size
			eased = true
		}
	}
	if eased {
		notify(o.eased)
	}
	return frame, len(o.large) > 0
}

// part appends the next part of p, which goes to the frame's end, and reports whether it was the last.
func (o *outbox) part(frame []byte, p *parcel) (_ []byte, done bool) {
	begun := p.left < p.size
	late := !time.Now().Before(p.deadline)
	switch {
	case late && !begun:
		return frame, true
	case late:
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

// ranked has a place in an order.
type ranked interface{ rank() int }

// bySize is a heap of what has a size: the smallest is first.
type bySize[T ranked] []T

func (h bySize[T]) Len() int           { return len(h) }
func (h bySize[T]) Less(i, j int) bool { return h[i].rank() < h[j].rank() }
func (h bySize[T]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *bySize[T]) Push(x any)        { *h = append(*h, x.(T)) }

// Pop takes the last element out.
func (h *bySize[T]) Pop() any {
	n := len(*h) - 1
	var none T
	x := (*h)[n]
	(*h)[n] = none
	*h = (*h)[:n]
	return x
}
