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
	// maxInFlight bounds the entries in flight if the other nodes are far away ([raftnode.FarAway]); the interval is then
	// the maxInFlight-th part of a round trip. Otherwise one entry is in flight: the leader writes to its disk while the
	// followers do (raftnode/parallel_log.go), so a second one would hide no delay, and make the entries smaller. One more
	// entry may be in flight: see apartFrom.
	maxInFlight = 16
	// aloneFrom is the size from which an entry is alone in flight.
	aloneFrom = 64 << 10
	// apartFrom is the work of large batches from which the small batches have an entry of their own before them. They
	// would otherwise get their replies, and the events that they cause, only after the large batches have run.
	apartFrom = 1 << 20
	// longBytes of large batches wait until the small batches before them are applied. Raft would send both entries in one
	// request, and store them by one append: its senders wake later than the second entry is made.
	longBytes = 1 << 20
)

// proposer makes log entries of waiting batches while this node leads. It runs on one goroutine: all batches that
// arrive while an entry is in flight go into the next.
type proposer struct {
	proposerConfig
	// held is full while an entry is made and passed to raft, and during a transfer of the leadership.
	held chan struct{}

	waiting [2]forward.Span // the batches of the sources for the next entry
	first   int             // the source that comes first in the next entry
	turn    int             // the source whose large batches have room first
	entry   *entryBuilder
	delay   *refusalDelay
	alone   bool        // an entry of the last step must be alone in flight
	room    *time.Timer // wakes the proposer when another entry may follow
	// restUntil is the time before which no entry is proposed, for a disk that is nearly full.
	restUntil time.Time
}

// proposerConfig has the functions and values that the proposer needs.
type proposerConfig struct {
	serving *atomic.Pointer[leaderTerm]
	sources [2]source
	wake    chan struct{}                           // signals that a source may have batches
	isNoop  func(body string, nowMillis int64) bool // [fsm.Machine.IsNoop]
	// version returns the newest version that entries may have, if it is above the argument. raised is called when an
	// entry raises the version.
	version func(above byte) byte
	raised  func(from, to byte)
	// propose passes an entry to raft. proposed is called after the first one was sent.
	propose  func(term uint64, entry []byte, flags ...byte)
	proposed func()
	took     func(time.Duration) // Config.OnEntry
	// roundTrip returns the round trip to the nearest majority, or 0 if it is unknown.
	roundTrip func() time.Duration
	limits    protocol.EntryLimits
	diskFull  *atomic.Bool // [Replica.DiskFull]
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

// hold stops all proposals until release.
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

// want requests an entry that brings cluster time to stampMillis, a reading of l's clock.
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

// step proposes an entry, or two, and reports whether there was one to propose. A wake follows everything that makes a
// later call succeed.
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
	if rest := time.Until(p.restUntil); rest > 0 {
		p.room.Reset(rest)
		return false
	}
	some, work := p.look(l)
	// The clock is read after the batches of the entries were chosen, and before they are taken. So no batch has a stamp
	// from before its arrival.
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
	limits := p.limits
	limits.DiskFull = p.diskFull.Load()
	begin := func() { p.entry.begin(version, stamp, offset, limits) }
	begin()
	apart := work >= apartFrom && p.gather(l, false)
	if apart {
		p.send(l, version, stamp, useful, 0)
		if p.areLong(l) {
			return true
		}
		begin()
	}
	if !p.gather(l, true) && stamp <= l.stamped && version == l.version {
		return apart // all chosen batches have timed out or were answered meanwhile
	}
	p.send(l, version, stamp, useful, work)
	return true
}

// send passes the entry to raft. work is the work of its large batches.
func (p *proposer) send(l *leaderTerm, version byte, stamp int64, useful bool, work int64) {
	entry, flags := p.entry.end()
	if version > l.version {
		p.raised(l.version, version)
	}
	l.stamped, l.version = stamp, version
	p.delay.propose(useful)
	p.alone = p.alone || len(entry) >= aloneFrom
	now := time.Now()
	if p.diskFull.Load() {
		p.restUntil = now.Add(time.Duration(len(entry)) * time.Second / fullBytesPerSecond)
	}
	l.begin(now, work)
	if l.inFlight.Add(1) == 1 {
		l.progress.Store(now.UnixNano())
		p.proposed()
	}
	p.propose(l.term, entry, flags...)
}

// mayFollow reports whether an entry may be proposed while n are in flight. If not, the proposer is woken when it may,
// or when one of them is applied.
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

// look reports whether batches wait, and returns the work of the large ones among them. If the other nodes are far
// away, a large batch waits while the work in flight exceeds that of a round trip and of an entry, which keeps the
// state machines busy. Below that the first is admitted in any case: otherwise the other source could use up its room
// forever.
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

// areLong reports whether the large batches that were admitted have many bytes.
func (p *proposer) areLong(l *leaderTerm) bool {
	bytes := 0
	for i, s := range p.sources {
		s.scan(l, p.waiting[i].Large, p.waiting[i].Until, func(b *forward.Batch) bool {
			bytes += len(b.Body)
			return bytes < longBytes
		})
	}
	return bytes >= longBytes
}

// gather adds waiting batches, all or only the small ones, to the entry until it is full, and reports whether there
// were any. The sources alternate in coming first.
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

// landed is called after an entry of term was applied.
func (p *proposer) landed(term uint64) {
	l := p.serving.Load()
	if l == nil || l.term != term {
		return
	}
	// serveAnew may have reset inFlight since the proposal of this entry, in the same term.
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
