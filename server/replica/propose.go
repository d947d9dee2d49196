package replica

import (
	"context"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
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

	sources [2]source
	waiting [2]span // what is in the sources for the next entry
	first   int     // whose batches go first into the next entry
	size    int     // of the last entry: a guess at the next one's
	delay   *refusalDelay

	// What follows is the entry that is being made, see gather.
	entry     *protocol.EntryWriter
	empty     int    // its length without batches
	deferred  []byte // batches that come later in the entry
	deferrals int    // how many
	add       func(*forward.Batch) bool
}

// span is the numbers from the first until the other.
type span struct{ from, until uint64 }

const (
	// maxDeferred bounds how many batches are put behind others at a time. Each can leave a gap in a
	// session's numbers while the entry is applied, and of those it remembers not too many.
	maxDeferred = 256
	// keepDeferred is how big p.deferred may stay, in bytes.
	keepDeferred = 64 << 10
)

func newProposer(r *Replica) *proposer {
	wake := make(chan struct{}, 1)
	p := &proposer{
		r: r, wake: wake, turn: make(chan struct{}, 1),
		delay: newRefusalDelay(r.config.Linger, wake),
	}
	p.add = p.append // made once: each use of a method as a value would allocate
	return p
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
func (p *proposer) want(l *leaderTerm, stampMillis int64) {
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
	p.delay.land(l)
	some := false
	for i, source := range p.sources {
		w := &p.waiting[i]
		w.from, w.until = source.waiting(l)
		some = some || w.from < w.until
	}
	// The clock is read when it is settled which batches can be in the entry, and
	// before they are: no batch is stamped earlier than it came.
	stamp, offset := l.clock.read()
	wanted := l.wanted.Load() > l.stamped
	if !some && !wanted {
		return false
	}
	useful := wanted || !p.onlyRefusals(stamp)
	if !useful && p.delay.left() > 0 {
		p.delay.hold()
		return false
	}
	p.entry = protocol.NewEntry(make([]byte, 0, p.size+p.size/4+64), stamp, offset, p.r.config.MaxMemoryBytes)
	p.empty = p.entry.Len()
	p.gather(l)
	if p.entry.Len() == p.empty && stamp <= l.stamped {
		return false // all that waited has been answered meanwhile
	}
	p.size = p.entry.Len()
	l.stamped = stamp
	p.delay.propose(useful)
	if l.inFlight.Add(1) == 1 {
		l.progress.Store(time.Now().UnixNano())
		p.r.timeouts.poke()
	}
	p.r.propose(l.term, p.entry.Bytes())
	return true
}

// gather moves the batches that wait into the entry until it is full. The sources take turns in going first.
//
// Nobody has an answer to any of them yet, so each order among them is one in which
// they may take effect. Batches that only want a key that nobody has come last: a
// lock that is released in this entry goes to a client that waits for it already, and
// not an entry later to the next that asks.
func (p *proposer) gather(l *leaderTerm) {
	p.first = 1 - p.first
	for _, i := range [...]int{p.first, 1 - p.first} {
		p.sources[i].take(l, p.waiting[i].until, p.add)
	}
	p.settle()
	if cap(p.deferred) > keepDeferred {
		p.deferred = nil
	}
}

// append puts a batch into the entry, and reports whether there was room.
func (p *proposer) append(b *forward.Batch) bool {
	if size := p.entry.Len() + len(p.deferred); size > p.empty && size+len(b.Body) > p.r.config.Limits.EntryBytes {
		return false
	}
	if _, _, takes := protocol.SetNXKey(b.Body); !takes {
		p.entry.Add(b.Origin, b.Low, b.Seq, b.Body)
		return true
	}
	p.deferred = protocol.AppendBatch(p.deferred, b.Origin, b.Low, b.Seq, b.Body)
	if p.deferrals++; p.deferrals == maxDeferred {
		p.settle()
	}
	return true
}

// settle puts the deferred batches into the entry.
func (p *proposer) settle() {
	p.entry.AddBatches(p.deferred)
	p.deferred, p.deferrals = p.deferred[:0], 0
}

// landed is told that an entry of this leadership was applied.
func (p *proposer) landed(l *leaderTerm) {
	l.progress.Store(time.Now().UnixNano())
	l.inFlight.Add(-1)
	notify(l.landed)
	notify(p.wake)
}
