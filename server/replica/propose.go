package replica

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// maxInFlight is how many entries may be in flight at once. Raft sends a follower one request at a
// time, and the leader's disk works beside the followers' disks anyway (raftnode/parallel_log.go). A
// second entry would hide no delay, and only make entries smaller and more.
const maxInFlight = 1

// proposer turns what waits into log entries, while this node leads. The proposer runs on a single
// goroutine: everything that came while an entry was in flight goes into the next.
type proposer struct {
	proposerConfig
	// held has a word while an entry is made and given to raft, and during a transfer of leadership.
	held chan struct{}

	waiting [2]span // what is in the sources for the next entry
	first   int     // whose batches go first into the next entry
	entry   *entryBuilder
	delay   *refusalDelay
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
	limits   protocol.EntryLimits
}

func newProposer(c proposerConfig, entryBytes int, delay time.Duration) *proposer {
	return &proposer{
		proposerConfig: c, held: make(chan struct{}, 1),
		entry: newEntryBuilder(entryBytes), delay: newRefusalDelay(c.isNoop, delay, c.wake),
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

// step proposes an entry and reports whether there was an entry to propose. Everything that makes a
// later call succeed sends a wake.
func (p *proposer) step() bool {
	l := p.serving.Load()
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
	// The clock is read after the sources have named the batches for this entry, and before the
	// batches are taken: no batch gets a stamp from before its arrival.
	stamp, offset := l.clock.read()
	version := max(l.version, p.version(l.version))
	wanted := l.wanted.Load() > l.stamped || version > l.version
	if !some && !wanted {
		return false
	}
	useful := wanted || !p.delay.onlyRefusals(&p.sources, &p.waiting, stamp)
	if !useful && p.delay.left() > 0 {
		p.delay.hold()
		return false
	}
	p.entry.begin(version, stamp, offset, p.limits)
	p.gather(l)
	entry, flags, some := p.entry.end()
	if !some && stamp <= l.stamped && version == l.version {
		return false // all that waited has been answered meanwhile
	}
	if version > l.version {
		p.raised(l.version, version)
	}
	l.stamped, l.version = stamp, version
	p.delay.propose(useful)
	if l.inFlight.Add(1) == 1 {
		l.progress.Store(time.Now().UnixNano())
		p.proposed()
	}
	p.propose(l.term, entry, flags...)
	return true
}

// gather moves the batches that wait into the entry until it is full. The sources take turns in going first.
func (p *proposer) gather(l *leaderTerm) {
	p.first = 1 - p.first
	for _, i := range [...]int{p.first, 1 - p.first} {
		p.sources[i].take(l, p.waiting[i].until, p.entry.add)
	}
}

// landed is told that an entry of term was applied.
func (p *proposer) landed(term uint64) {
	l := p.serving.Load()
	if l == nil || l.term != term {
		return
	}
	now := time.Now()
	if p.took != nil {
		// One entry is in flight at a time, so the last progress was the proposal.
		p.took(now.Sub(time.Unix(0, l.progress.Load())))
	}
	l.progress.Store(now.UnixNano())
	l.inFlight.Add(-1)
	notify(l.landed)
	notify(p.wake)
}
