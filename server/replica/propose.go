package replica

import (
	"context"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// maxInFlight is how many entries may be on their way at once. Raft sends a follower
// one request at a time, and the leader's disk works beside the followers' anyway
// (parallelLog): a second entry would hide nothing, and only make them smaller and more.
const maxInFlight = 1

// proposer turns what waits into log entries, while this node leads. It runs on one
// goroutine: everything that came while an entry was on its way goes into the next.
type proposer struct {
	r    *Replica
	wake chan struct{}
	// turn is held while an entry is made and given to raft, and during a transfer of leadership.
	turn chan struct{}

	size       int    // of the last entry: a guess at the next one's
	othersTurn bool   // whose batches go first into the next entry
	deferred   []byte // batches that come later in the entry, see gather
	linger     linger
}

const (
	// maxDeferred bounds how many batches are put behind others at a time. Each can leave a gap in a
	// session's numbers while the entry is applied, and of those it remembers not too many.
	maxDeferred = 256
	// keepDeferred is how big p.deferred may stay, in bytes.
	keepDeferred = 64 << 10
)

func newProposer(r *Replica) *proposer {
	wake := make(chan struct{}, 1)
	return &proposer{
		r: r, wake: wake, turn: make(chan struct{}, 1),
		linger: newLinger(r.config.Timing.Linger, wake),
	}
}

func (p *proposer) run(ctx context.Context) error {
	for {
		select {
		case <-p.wake:
		case <-ctx.Done():
			return nil
		}
		for more := true; more; {
			if p.hold(ctx) != nil {
				return nil
			}
			more = p.step()
			p.release()
		}
	}
}

// hold keeps everything from being proposed until release.
func (p *proposer) hold(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *proposer) release() { <-p.turn }

// want asks for an entry that brings cluster time to stampMillis, a reading of l's clock.
func (p *proposer) want(l *lead, stampMillis int64) {
	for {
		old := l.wanted.Load()
		if old >= stampMillis {
			return
		}
		if l.wanted.CompareAndSwap(old, stampMillis) {
			notify(p.wake)
			return
		}
	}
}

// step proposes one entry and reports whether it did. Whatever makes a later
// call succeed sends a wake.
func (p *proposer) step() bool {
	l := p.r.serving.Load()
	if l == nil || l.inFlight.Load() >= maxInFlight {
		return false
	}
	p.linger.land(l)
	from, until := p.r.writes.waiting(l)
	others := p.r.inbox.waiting(l.term)
	// The clock is read when it is settled which batches can be in the entry, and
	// before they are: no batch is stamped earlier than it came.
	stamp, offset := l.clock.read()
	wanted := l.wanted.Load() > l.stamped
	if from == until && others == 0 && !wanted {
		return false
	}
	useful := wanted || !p.onlyRefusals(from, until, others, stamp)
	if !useful && p.linger.left() > 0 {
		p.linger.hold()
		return false
	}
	w := protocol.NewEntry(make([]byte, 0, p.size+p.size/4+64), stamp, offset, p.r.config.MemoryLimitBytes)
	empty := w.Len()
	p.gather(l, w, until, others)
	if w.Len() == empty && stamp <= l.stamped {
		return false // all that waited has been answered meanwhile
	}
	p.size = w.Len()
	l.stamped = stamp
	p.linger.propose(useful)
	if l.inFlight.Add(1) == 1 {
		l.progress.Store(time.Now().UnixNano())
		p.r.sweeper.poke()
	}
	p.r.propose(l.term, w.Bytes())
	return true
}

// gather moves batches into the entry until it is full: this node's up to number
// until, and as many of the other nodes' as given. They take turns in going first.
//
// Nobody has an answer to any of them yet, so each order among them is one in which
// they may take effect. Those that are nothing but a wish for a key that nobody has come last: a
// lock that is released in this entry goes to one that waits for it at once, and
// not an entry later to whoever asks again.
func (p *proposer) gather(l *lead, w *protocol.EntryWriter, until uint64, others int) {
	limit, empty, deferred := p.r.config.Limits.EntryBytes, w.Len(), 0
	settle := func() {
		w.AddBatches(p.deferred)
		p.deferred, deferred = p.deferred[:0], 0
	}
	add := func(o protocol.Origin, low, seq uint64, body []byte) bool {
		if size := w.Len() + len(p.deferred); size > empty && size+len(body) > limit {
			return false
		}
		if _, _, takes := protocol.SetNXKey(body); !takes {
			w.Add(o, low, seq, body)
			return true
		}
		p.deferred = protocol.AppendBatch(p.deferred, o, low, seq, body)
		if deferred++; deferred == maxDeferred {
			settle()
		}
		return true
	}
	own := func() {
		p.r.writes.take(l, until, func(low, number uint64, u *Batch) bool {
			return add(p.r.origin, low, number, u.Body)
		})
	}
	p.othersTurn = !p.othersTurn
	if !p.othersTurn {
		own()
	}
	p.r.inbox.take(l.term, others, func(f *forwarded) bool {
		return add(f.origin, f.low, f.seq, f.body)
	})
	if p.othersTurn {
		own()
	}
	settle()
	if cap(p.deferred) > keepDeferred {
		p.deferred = nil
	}
}

// landed is told that an entry of this leadership was applied.
func (p *proposer) landed(l *lead) {
	l.progress.Store(time.Now().UnixNano())
	l.inFlight.Add(-1)
	notify(l.landed)
	notify(p.wake)
}
