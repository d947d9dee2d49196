package replica

import (
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
)

// Of a batch the state machine runs what the budgets of batch and entry have room for, and surely
// not the rest. The rest is proposed again in the same pending, as another batch behind all that waits, so
// connections take turns. It goes in pieces: of one request first, then of more as more fit. At once, a
// long pipeline would stand in the log as often as it has requests.

// piece is what of a pending's batch is proposed at present.
type piece struct {
	forward.Batch
	from     int // where its body begins in that of the batch
	answered int // requests of the batch that have replies
	ran      int // how many of them came last
}

// whole is a piece of all of u.
func whole(u *Batch) piece {
	return piece{Batch: forward.Batch{Body: u.Body, Count: u.Count, Claim: u.Write && fsm.IsClaim(u.Body)}}
}

// take notes the replies to the piece that was proposed, and reports whether u has all now.
func (p *piece) take(u *Batch, replies []protocol.Value) bool {
	if p.answered == 0 {
		u.Replies = replies
	} else {
		u.Replies = append(u.Replies, replies...)
	}
	p.ran, p.answered = len(replies), len(u.Replies)
	return p.answered >= u.Count
}

// next makes p the piece of u that follows what was run.
func (p *piece) next(u *Batch) {
	p.from += protocol.BodyLen(u.Body[p.from:], p.ran)
	rest := u.Body[p.from:]
	p.Count = min(u.Count-p.answered, 2*p.ran+1)
	p.Body = rest[:protocol.BodyLen(rest, p.Count)]
	p.Claim = fsm.IsClaim(p.Body)
}

// fill answers with err what of u has no reply. It returns nil if some of u has a true one.
func (p *piece) fill(u *Batch, err error) error {
	row, is := err.(*protocol.Error)
	if p.answered == 0 || !is {
		return err
	}
	for len(u.Replies) < u.Count {
		u.Replies = append(u.Replies, row.Value())
	}
	return nil
}

// again has the rest of ps proposed: first of those whose turn did not come.
func (q *queue) again(ps []*pending) {
	now := time.Now()
	for _, ran := range [...]bool{false, true} {
		for i, s := range ps {
			if s != nil && s.piece.ran > 0 == ran {
				ps[i] = nil // one that has ended is its waiter's
				q.requeue(s, now)
			}
		}
	}
	if q.wake != nil {
		notify(q.wake)
	}
}

// requeue puts s behind all that waits, if there is time.
func (q *queue) requeue(s *pending, now time.Time) {
	switch {
	case q.refuse != nil:
		q.finish(s, q.refuse)
	case s.deadline.Sub(now) < q.inTime, q.next-q.low >= maxSpan:
		q.finish(s, protocol.ErrNoRoom)
	default:
		s.piece.next(s.batch)
		*q.at(s.piece.Seq) = nil
		s.handed = false
		q.place(s)
	}
}
