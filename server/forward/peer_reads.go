package forward

import (
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/peer/wire"
)

// readOverhead is the memory of a waiting read beside its body.
const readOverhead = 128

// forwardedRead is a read of a follower's client.
type forwardedRead struct {
	number   uint64
	count    int
	body     string
	deadline time.Time
	census   bool // body is a question to every node
	size     int  // the size of a reply for which there was no room

	read    bool // set by readAside with the result in replies and err
	replies []protocol.Value
	err     error
}

func (f forwardedRead) rank() int { return f.size }

// ErrElsewhere is the error of functions of [ReceiverConfig] on a node that no longer leads. The read gets no answer,
// as the link is about to be closed, and the follower sends the read to the next leader.
var ErrElsewhere = errors.New("this node no longer leads")

// Errors that replace the reply to a read.
var (
	errInternal      = &protocol.Error{Prefix: "ERR", Text: "internal error, see this node's log"}
	errReplyTooLarge = &protocol.Error{Prefix: "ERR", Text: "the reply is too large to be forwarded"}
)

// queueReads queues reads, and refuses those without room. It does not wait, as writes come over the same connection.
func (p *Peer) queueReads(reads []forwardedRead) {
	bound := p.config.QueueBytes / max(p.config.Followers(), 1)
	p.mu.Lock()
	var refused []uint64
	for _, f := range reads {
		if cost := len(f.body) + readOverhead; p.readBytes == 0 || p.readBytes+cost <= bound {
			p.readBytes += cost
			p.reads = append(p.reads, f)
		} else {
			refused = append(refused, f.number)
		}
	}
	p.mu.Unlock()
	for _, number := range refused {
		p.refuse(number, protocol.ErrBusy)
	}
	notify(p.readsQueued)
	notify(p.wake)
}

// releaseRead frees the room of a read that has been answered or dropped.
func (p *Peer) releaseRead(f *forwardedRead) {
	p.mu.Lock()
	p.readBytes -= len(f.body) + readOverhead
	p.mu.Unlock()
}

// answerReads serves queued reads until ctx ends, with one leadership check for all that are queued at a time. A read
// whose reply finds no room is executed again when there is room. Until then its reply takes no memory, and later reads
// pass it.
func (p *Peer) answerReads(ctx context.Context) {
	var later bySize[forwardedRead]
	for {
		select {
		case <-p.readsQueued:
		case <-p.out.roomFreed:
		case <-ctx.Done():
			return
		}
		p.mu.Lock()
		reads := p.reads
		p.reads = nil
		p.mu.Unlock()
		var err error
		if len(reads) > 0 {
			// A read with an earlier deadline is answered by the follower itself if the check takes longer.
			last := slices.MaxFunc(reads, func(a, b forwardedRead) int { return a.deadline.Compare(b.deadline) })
			err = p.config.Confirm(ctx, last.deadline)
		}
		for i := range reads {
			if !p.serve(ctx, &reads[i], err) {
				heap.Push(&later, reads[i])
			}
		}
		for len(later) > 0 && p.out.fits(later[0].size) {
			f := heap.Pop(&later).(forwardedRead)
			if !p.serve(ctx, &f, nil) {
				heap.Push(&later, f)
			}
		}
		notify(p.wake)
	}
}

// serve executes one read after a leadership check with the result err. It returns false if there was no room for the
// reply.
func (p *Peer) serve(ctx context.Context, f *forwardedRead, err error) bool {
	for p.out.holds(shortBytes) {
		notify(p.wake)
		select {
		case <-p.out.roomFreed:
		case <-ctx.Done():
			return true
		}
	}
	var replies []protocol.Value
	switch {
	case err != nil:
	case f.read:
		// If there is no room for the replies, the read is executed again.
		replies, err = f.replies, f.err
		f.read, f.replies = false, nil
	case f.census:
		p.readAside(*f, func() ([]protocol.Value, error) {
			return p.config.Census(p.origin, f.body, f.deadline)
		})
		return true
	case time.Now().Before(f.deadline):
		var rest string
		if replies, rest, err = p.config.ReadShort(f.body, f.count, f.deadline); err == nil && rest != "" {
			// The deadline leaves time to send an error: the follower would answer a timeout as a lost leader.
			p.readAside(*f, func() ([]protocol.Value, error) {
				return p.config.ReadLong(replies, rest, f.count, f.deadline.Add(-p.config.CommandTimeout/4))
			})
			return true
		}
	default:
		err = protocol.ErrNoLeader
	}
	if err == nil {
		size, ok := protocol.SizesWithin(replies, p.config.ReplyBytes)
		if ok && !p.out.put(kindAnswer, f.number, replies, size, f.deadline) {
			f.size = size
			return false
		}
		if !ok {
			err = errReplyTooLarge
		}
	}
	p.releaseRead(f)
	if err == nil || errors.Is(err, ErrElsewhere) {
		return true
	}
	var row *protocol.Error
	if !errors.As(err, &row) {
		row = errInternal
	}
	p.refuse(f.number, row)
	return true
}

// readAside runs a long read, or the rest of one, on a goroutine of its own, and queues the read again with the result.
func (p *Peer) readAside(f forwardedRead, read func() ([]protocol.Value, error)) {
	p.parts.Go(func() {
		f.replies, f.err = read()
		f.read = true
		p.mu.Lock()
		p.reads = append(p.reads, f)
		p.mu.Unlock()
		notify(p.readsQueued)
	})
}

// refuse answers a read with an error.
func (p *Peer) refuse(number uint64, row *protocol.Error) {
	p.out.add(func(dst []byte) []byte {
		dst = binary.AppendUvarint(append(dst, kindRefuse), number)
		dst = binary.AppendUvarint(dst, uint64(row.Outcome))
		return wire.AppendBytes(wire.AppendBytes(dst, row.Prefix), row.Text)
	})
}
