package replica

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
	"github.com/holdfast/holdfast/server/raftnode"
)

const (
	// maxInFlight is how many entries may be in flight at once where the other nodes are far away
	// ([raftnode.FarAway]): one after each maxInFlight-th of a round trip. Elsewhere a single entry is in flight: the
	// leader's disk works beside the followers' disks anyway (raftnode/parallel_log.go), so a second would hide no
	// delay, and only make entries smaller and more. One more may be in flight: see apartFrom.
	maxInFlight = 16
	// aloneFrom is the size of an entry from which on no later step proposes one beside it.
	aloneFrom = 64 << 10
	// apartFrom is the work of large batches from which on the small batches that wait have an entry of their own, right
	// before. Else they would be answered, and told of what they caused, when the large ones have run.
	apartFrom = 1 << 20
)

// proposer turns what waits into log entries, while this node leads. The proposer runs on a single
// goroutine: everything that came while an entry was in flight goes into the next.
type proposer struct {
	proposerConfig
	// held has a word while an entry is made and given to raft, and during a transfer of leadership.
	held chan struct{}

	waiting [2]forward.Span // what is in the sources for the next entry
	first   int             // whose batches go first into the next entry
	turn    int             // whose large batches have room first
	entry   *entryBuilder
	delay   *refusalDelay
	alone   bool        // an entry of the last step is to be alone in flight
	room    *time.Timer // wakes the proposer when another entry may follow
}

// proposerConfig is what the proposer is handed.
type proposerConfig struct {
	serving *atomic.Pointer[leaderTerm]
	sources [2]source
	wake    chan struct{}                           // something waits that can be taken
	isNoop  func(body string, nowMillis int64) bool // [fsm.Machine.IsNoop]
	// version is the newest version that entries may have, if that is above the version given. raised is called when an
	// entry raises it.
	version func(above byte) byte
	raised  func(from, to byte)
	// propose gives an entry to raft; proposed is called when the first is on its way.
	propose  func(term uint64, entry []byte, flags ...byte)
	proposed func()
	took     func(time.Duration) // Config.OnEntry
	// roundTrip is that to the nearest majority; 0: not known.
	roundTrip func() time.Duration
	limits    protocol.EntryLimits
}

func newProposer(c proposerConfig, entryBytes int, delay time.Duration) *proposer {
	p := &proposer{
		proposerConfig: c, held: make(chan struct{}, 1),
		entry: newEntryBuilder(entryBytes), delay: newRefusalDelay(c.isNoop, delay, c.wake),
		room: time.AfterFunc(time.Hour, func() { notify(c.wake) }),
	}
	p.room.Stop()
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
	case p.held <- struct{}{}:
		if ctx.Err() == nil {
			return nil
		}
		p.release()
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (p *proposer) release() { <-p.held }

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

// step proposes an entry, or two, and reports whether there was an entry to propose. Everything that makes a
// later call succeed sends a wake.
func (p *proposer) step() bool {
	l := p.serving.Load()
	if l == nil {
		return false
	}
	n := l.inFlight.Load()
	switch {
	case n <= 0:
		p.delay.land(l)
	case !p.mayFollow(l, n):
		return false
	}
	some, work := p.look(l)
	// The clock is read after the sources have named the batches for the entries, and before the
	// batches are taken: no batch gets a stamp from before its arrival.
	stamp, offset := l.clock.read()
	version := max(l.version, p.version(l.version))
	wanted := l.wanted.Load() > l.stamped || version > l.version
	if !some && !wanted {
		return false
	}
	useful := wanted || !p.delay.onlyRefusals(&p.sources, &p.waiting, stamp)
	if !useful && n <= 0 && p.delay.left() > 0 {
		p.delay.hold()
		return false
	}
	p.first, p.alone = 1-p.first, false
	begin := func() { p.entry.begin(version, stamp, offset, p.limits) }
	begin()
	apart := work >= apartFrom && p.gather(l, false)
	if apart {
		p.send(l, version, stamp, useful, 0)
		begin()
	}
	if !p.gather(l, true) && stamp <= l.stamped && version == l.version {
		return apart // all that waited has been answered meanwhile
	}
	p.send(l, version, stamp, useful, work)
	return true
}

// send gives the entry to raft. Work is that of its large batches.
func (p *proposer) send(l *leaderTerm, version byte, stamp int64, useful bool, work int64) {
	entry, flags := p.entry.end()
	if version > l.version {
		p.raised(l.version, version)
	}
	l.stamped, l.version = stamp, version
	p.delay.propose(useful)
	p.alone = p.alone || len(entry) >= aloneFrom
	now := time.Now()
	l.begin(now, work)
	if l.inFlight.Add(1) == 1 {
		l.progress.Store(now.UnixNano())
		p.proposed()
	}
	p.propose(l.term, entry, flags...)
}

// mayFollow reports whether an entry may be proposed beside n that are in flight. If it may later, the proposer is
// woken then; else when one of them lands.
func (p *proposer) mayFollow(l *leaderTerm, n int32) bool {
	trip := p.roundTrip()
	if trip < raftnode.FarAway || n >= maxInFlight || p.alone {
		return false
	}
	wait := trip/maxInFlight - time.Since(l.lastBegun())
	if wait > 0 {
		p.room.Reset(wait)
	}
	return wait <= 0
}

// look finds what waits, and reports whether there is any, and the work of the large batches among it. Far away, no large
// batch follows others in flight with the work of a round trip and of an entry, which keep the state machines busy. Below
// that the first goes in any case: the room that it needs may never come while the other source fills what there is.
func (p *proposer) look(l *leaderTerm) (some bool, work int64) {
	trip, inFlight := p.roundTrip().Nanoseconds(), l.work.Load()
	room := min(max(entryWork, trip), maxEntryWork)
	room = min(room, room+trip-inFlight)
	for _, i := range [...]int{p.turn, 1 - p.turn} {
		w := &p.waiting[i]
		*w = p.sources[i].waiting(l, room-work, room > 0 && work == 0)
		if w.Work > 0 && work == 0 {
			p.turn = 1 - i
		}
		some, work = some || w.From < w.Until, work+w.Work
	}
	return some, work
}

// gather moves the batches that wait, all or the small ones, into the entry until it is full, and reports whether there
// were any. The sources take turns in going first.
func (p *proposer) gather(l *leaderTerm, all bool) bool {
	for _, i := range [...]int{p.first, 1 - p.first} {
		until := p.waiting[i].Large
		if all {
			until = p.waiting[i].Until
		}
		p.sources[i].take(l, until, p.entry.add)
	}
	return p.entry.some()
}

// landed is told that an entry of term was applied.
func (p *proposer) landed(term uint64) {
	l := p.serving.Load()
	if l == nil || l.term != term {
		return
	}
	// An entry that was proposed before this node served anew, in the same term, may find none in flight.
	if l.inFlight.Load() > 0 {
		now := time.Now()
		if took := now.Sub(l.land()); p.took != nil {
			p.took(took)
		}
		l.progress.Store(now.UnixNano())
		l.inFlight.Add(-1)
		notify(l.landed)
	}
	notify(p.wake)
}
