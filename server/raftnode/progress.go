package raftnode

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// progress knows which followers make none, while this node leads. It judges by their logs: heartbeats
// are answered also by a follower that can no longer append.
//
// Every beacon of every link has it look at all followers, so it needs no timer, and those without a link are seen, too: a
// leader has a majority, and so a link.
type progress struct {
	n       *Node
	others  []string
	looking atomic.Bool // so that events are told in the order in which they came about

	mu     sync.Mutex
	term   uint64 // of the leadership that the rest is about
	last   time.Time
	behind map[string]lag
}

// lag is a follower that lacks committed entries.
type lag struct {
	at    uint64    // its log agrees with the leader's up to here, and has done so since
	since time.Time // when that was first seen
	told  bool      // that it makes no progress
}

func newProgress(n *Node) *progress {
	others := slices.Sorted(maps.Keys(n.config.InitialCluster))
	return &progress{n: n, others: slices.DeleteFunc(others, func(name string) bool { return name == n.config.Name })}
}

// Look compares the followers' logs with what is committed, and tells what has changed. It is
// called once a second, or more often, while this node leads term.
func (n *Node) Look(term uint64) {
	p := n.progress
	if !p.looking.CompareAndSwap(false, true) {
		return
	}
	defer p.looking.Store(false)
	committed, matches := n.raft.CommitIndex(), n.acks.matches(term)
	now := time.Now()
	p.begin(term, now)
	for _, name := range p.others {
		if e := p.judge(name, matches[name], committed, now); e != nil {
			n.config.OnEvent(e)
		}
	}
}

// Stalled returns where the log of a follower stands still, and since when, if that was told in
// this leadership.
func (n *Node) Stalled(name string, term uint64) (at uint64, since time.Time, ok bool) {
	l, ok := n.progress.stalled(name, term)
	return l.at, l.since, ok && n.acks.matches(term)[name] == l.at
}

const (
	// StalledAfter is how long a follower may be without progress before its leader tells.
	StalledAfter = 3 * time.Second
	// lookAgain is the longest time between two looks after which the first still counts.
	lookAgain = 2 * time.Second
)

// begin starts anew in another leadership. After a pause nothing is known of what went on meanwhile, as when
// this process was frozen: the followers get their time again.
func (p *progress) begin(term uint64, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.term != term {
		p.term, p.behind = term, make(map[string]lag)
	} else if now.Sub(p.last) > lookAgain {
		maps.DeleteFunc(p.behind, func(_ string, l lag) bool { return !l.told })
	}
	p.last = now
}

// judge notes how far the log of a follower is, and returns what there is to tell, or nil.
func (p *progress) judge(name string, match, committed uint64, now time.Time) Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, known := p.behind[name]
	if known && match == l.at {
		if l.told || now.Sub(l.since) < StalledAfter {
			return nil
		}
		l.told = true
		p.behind[name] = l
		return FollowerStalled{Name: name, LogIndex: match, Committed: committed, Since: l.since}
	}
	delete(p.behind, name)
	if match < committed {
		p.behind[name] = lag{at: match, since: now}
	}
	if l.told {
		return FollowerMoves{Name: name, LogIndex: match, After: now.Sub(l.since)}
	}
	return nil
}

// stalled returns where the log of a follower of term has stood still, and since when, if that was told.
func (p *progress) stalled(name string, term uint64) (l lag, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l = p.behind[name]
	return l, p.term == term && l.told
}
