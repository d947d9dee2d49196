package replica

import (
	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
)

// The state machine runs as much of a batch as the budgets of batch and entry allow. The rest has surely not run. It is
// proposed again in the same pending, as another batch at the end of the queue, so connections take turns. The rest is
// cut into pieces: first of one request, then of more as more fit. Re-proposing the whole rest each time would write a
// long pipeline to the log once per request.

// piece is the part of a pending's batch that is proposed now.
type piece struct {
	forward.Batch
	from     int // where the piece's body begins in the batch's body
	answered int // the requests of the batch that have replies
	ran      int // the requests that ran in the last piece
}

// whole returns the piece of all of b.
func whole(b *Batch) piece {
	return piece{Batch: forward.Batch{
		Body: b.Body, Count: b.Count, Hints: b.Hints, Census: b.Census, Work: b.estimate(),
	}}
}

// take stores the replies to the proposed piece, and reports whether b has all replies.
func (p *piece) take(b *Batch, replies []protocol.Value) bool {
	if p.answered == 0 {
		b.Replies = replies
	} else {
		b.Replies = append(b.Replies, replies...)
	}
	p.ran, p.answered = len(replies), len(b.Replies)
	return p.answered >= b.Count
}

// next makes p the piece of b after the requests that have run. A request that did not fit costs more than a batch may
// spend in any case, so the piece is large whatever its estimate was. If no request ran, the estimate grows each time.
func (p *piece) next(b *Batch) {
	each := p.Work / int64(p.Count)
	if p.ran == 0 {
		each = max(each, min(8*each, entryWork))
	}
	p.from += protocol.BodyLen(b.Body[p.from:], p.ran)
	rest := b.Body[p.from:]
	p.Count = min(b.Count-p.answered, 2*p.ran+1)
	p.Body = rest[:protocol.BodyLen(rest, p.Count)]
	if b.Write {
		p.Work = max(each*int64(p.Count), fsm.MuchWork)
	}
}

// fill replies with err to the requests of b that have no reply. It returns nil if b has a true reply.
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
