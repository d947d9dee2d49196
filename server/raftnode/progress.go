package raftnode

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/server/members"
)

// progress detects followers whose logs make no progress while this node leads. Heartbeats do not count, since a
// follower that can no longer append still answers them.
type progress struct {
	tell      func(Event)
	heartbeat time.Duration // Config.HeartbeatTimeout
	checking  atomic.Bool   // excludes concurrent checks, so that events are reported in order

	mu     sync.Mutex
	term   uint64 // of the leadership that the fields below describe
	last   time.Time
	behind map[string]lag // by ID
	far    bool           // whether FarApart was reported and still applies
}

// lag describes a follower that lacks committed entries.
type lag struct {
	at    uint64    // match index of the follower
	since time.Time // when at was first observed
	told  bool      // whether FollowerStalled was reported
}

const (
	// StalledAfter is the time without progress after which a follower is reported.
	StalledAfter = 3 * time.Second
	// checkAgain is the longest time between two checks. After a longer one, progress starts over.
	checkAgain = 2 * time.Second
)

func newProgress(c *Config) *progress {
	return &progress{tell: c.OnEvent, heartbeat: c.HeartbeatTimeout}
}

// check compares the followers' logs with the commit index of the leader of term, and reports changes as events.
func (p *progress) check(term, committed uint64, acks *acks) {
	if !p.checking.CompareAndSwap(false, true) {
		return
	}
	defer p.checking.Store(false)
	now, matches := time.Now(), acks.matches(term)
	p.begin(term, now)
	p.forget(matches)
	for _, id := range slices.Sorted(maps.Keys(matches)) {
		if e := p.judge(id, matches[id], committed, now); e != nil {
			p.tell(e)
		}
	}
	if e := p.judgeRoundTrip(time.Duration(acks.quorum.Load())); e != nil {
		p.tell(e)
	}
}

// judgeRoundTrip returns the event to report for the round trip to a majority, or nil.
func (p *progress) judgeRoundTrip(trip time.Duration) Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	far := trip > p.heartbeat/4
	if p.far && !far {
		p.far = trip > p.heartbeat/5 // hysteresis
	}
	if p.far || !far {
		return nil
	}
	p.far = true
	return FarApart{RoundTrip: trip, HeartbeatTimeout: p.heartbeat}
}

// farApart reports whether FarApart was reported in term and still applies.
func (p *progress) farApart(term uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.far && p.term == term
}

// begin starts over in another leadership, and after a pause in which nothing was checked, as when this process was
// frozen.
func (p *progress) begin(term uint64, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.term != term {
		p.term, p.behind, p.far = term, make(map[string]lag), false
	} else if now.Sub(p.last) > checkAgain {
		maps.DeleteFunc(p.behind, func(_ string, l lag) bool { return !l.told })
	}
	p.last = now
}

// forget drops nodes that are no longer members.
func (p *progress) forget(others map[string]uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.behind, func(id string, _ lag) bool { _, member := others[id]; return !member })
}

// judge records a follower's match index, and returns the event to report, or nil.
func (p *progress) judge(id string, match, committed uint64, now time.Time) Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, known := p.behind[id]
	if known && match == l.at {
		if l.told || now.Sub(l.since) < StalledAfter {
			return nil
		}
		l.told = true
		p.behind[id] = l
		return FollowerStalled{ID: id, Name: members.Name(id), LogIndex: match, Committed: committed, Since: l.since}
	}
	delete(p.behind, id)
	if match < committed {
		p.behind[id] = lag{at: match, since: now}
	}
	if l.told {
		return FollowerMoves{ID: id, Name: members.Name(id), LogIndex: match, After: now.Sub(l.since)}
	}
	return nil
}

// stalled returns the lag of a follower. ok is false unless FollowerStalled was reported in term.
func (p *progress) stalled(id string, term uint64) (l lag, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l = p.behind[id]
	return l, p.term == term && l.told
}
