package raftnode

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/server/members"
)

// progress knows which followers make no progress, while this node leads. The logs alone count: a
// follower that can no longer append answers heartbeats all the same.
type progress struct {
	tell      func(Event)
	heartbeat time.Duration // Config.HeartbeatTimeout
	checking  atomic.Bool   // so that events are told in the order of their causes

	mu     sync.Mutex
	term   uint64 // of the leadership that the rest is about
	last   time.Time
	behind map[string]lag // by ID
	far    bool           // FarApart was told
}

// lag is a follower that lacks committed entries.
type lag struct {
	at    uint64    // the follower's log agrees with the leader's up to here, and has done so since
	since time.Time // when that was first seen
	told  bool      // that there is no progress
}

const (
	// StalledAfter is how long a follower may be without progress before the leader tells.
	StalledAfter = 3 * time.Second
	// checkAgain is the longest time between two checks after which the first still counts.
	checkAgain = 2 * time.Second
)

func newProgress(c *Config) *progress {
	return &progress{tell: c.OnEvent, heartbeat: c.HeartbeatTimeout}
}

// check compares the followers' logs with what the leader of term has committed, and tells what has changed.
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

// judgeRoundTrip returns what there is to tell of the round trip to a majority, or nil.
func (p *progress) judgeRoundTrip(trip time.Duration) Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	far := trip > p.heartbeat/4
	if p.far && !far {
		p.far = trip > p.heartbeat/5 // it may swing
	}
	if p.far || !far {
		return nil
	}
	p.far = true
	return FarApart{RoundTrip: trip, HeartbeatTimeout: p.heartbeat}
}

// farApart reports whether FarApart was told of the leadership of term, and is so still.
func (p *progress) farApart(term uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.far && p.term == term
}

// begin starts anew in another leadership. After a pause nothing is known of what went on meanwhile, as when
// this process was frozen: the followers get their time again.
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

// forget drops what is known of nodes that are members no more.
func (p *progress) forget(others map[string]uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.behind, func(id string, _ lag) bool { _, member := others[id]; return !member })
}

// judge notes how far the log of a follower is, and returns what there is to tell, or nil.
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

// stalled returns where the log of a follower of term has stood still, and since when, if that was told.
func (p *progress) stalled(id string, term uint64) (l lag, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l = p.behind[id]
	return l, p.term == term && l.told
}
