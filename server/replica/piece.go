package replica

import (
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
)

// The state machine runs as much of a batch as the budgets of batch and entry have room for, and
// surely not the rest. The rest is proposed again in the same pending, as another batch behind all
// that waits, so connections take turns. The rest goes in pieces: first of one request, then of
// more as more fit. In one piece, a long pipeline would stand in the log as often as there are requests.

// piece is what of a pending's batch is proposed at present.
type piece struct {
	forward.Batch
	from     int // where the piece's body begins in the batch's body
	answered int // requests of the batch that have replies
	ran      int // how many of them came last
}

// whole is a piece of all of b.
func whole(b *Batch) piece {
	return piece{Batch: forward.Batch{
		Body: b.Body, Count: b.Count, Hints: b.Hints, Census: b.Census, Work: b.estimate(),
	}}
}

// take notes the replies to the piece that was proposed, and reports whether b has all now.
func (p *piece) take(b *Batch, replies []protocol.Value) bool {
	if p.answered == 0 {
		b.Replies = replies
	} else {
		b.Replies = append(b.Replies, replies...)
	}
	p.ran, p.answered = len(replies), len(b.Replies)
	return p.answered >= b.Count
}

// next makes p the piece of b that follows what was run.
func (p *piece) next(b *Batch) {
	p.from += protocol.BodyLen(b.Body[p.from:], p.ran)
	rest := b.Body[p.from:]
	p.Count = min(b.Count-p.answered, 2*p.ran+1)
	p.Body = rest[:protocol.BodyLen(rest, p.Count)]
	p.Work = b.estimate() / int64(b.Count) * int64(p.Count)
}

// fill answers the requests of b without a reply with err. It returns nil if b has a true reply.
func (p *piece) fill(b *Batch, err error) error {
	row, is := err.(*protocol.Error)
	if p.answered == 0 || !is {
		return err
	}
	for len(b.Replies) < b.Count {
		b.Replies = append(b.Replies, row.Value())
	}
	return nil
}
