package raftnode

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/members"
)

// acks knows what the other nodes have acknowledged: how far their logs agree with this node's, and
// how recently each node took this node for the leader.
//
// Recently is counted in rounds, not in time. A round is a leadership check, and is over when a
// majority has acknowledged, in this node's term, a request that was sent after the round began.
// Raft's VerifyLeader also takes acknowledgements of requests from before. A leader that was frozen
// between sending and receiving could then take old acknowledgements as confirmation, although
// another leader has been elected meanwhile, and serve a stale read.
//
// Acknowledgements are counted by the configuration in effect. A round is confirmed under a single configuration:
// a round during which the configuration changes has moved, and the caller begins another.
type acks struct {
	self raft.ServerID
	// recent is how long the time of a round trip to a member counts for quorum.
	recent time.Duration

	mu      sync.Mutex
	view    *view
	round   uint64 // the newest that began
	peers   map[raft.ServerID]*peerAck
	waiters []*Acknowledgement
	// quorum is the time of a round trip to as many voters as make a majority with this node; 0: it is not known.
	quorum atomic.Int64
}

// peerAck is another member's acknowledgement in the newest term of that node.
type peerAck struct {
	voter    bool
	term     uint64
	round    uint64 // the newest round that had begun when an acknowledged request was sent
	match    uint64 // the other log agrees with the leader's up to here
	snapshot uint64 // up to here, on its way to the member, or what the member has caught up from since; 0: none
	notified uint64 // the highest commit index that was sent to the member
	heard    time.Time
	trip     leastTime
}

// leastTime is the least of the last times, of tripTimes to twice as many; 0: there are too few. A busy machine makes
// most of them long, and a longer way all.
type leastTime struct {
	least, before time.Duration
	count         int
	at            time.Time // of the last
}

const tripTimes = 16

func (l *leastTime) add(d time.Duration) {
	l.at = time.Now()
	if l.count%tripTimes == 0 || d < l.least {
		l.least = d
	}
	if l.count++; l.count%tripTimes == 0 {
		l.before = l.least
	}
}

// isKnown reports whether there are enough times, and the last was after since.
func (l *leastTime) isKnown(since time.Time) bool { return l.count >= tripTimes && l.at.After(since) }

func (l *leastTime) get() time.Duration {
	if l.count%tripTimes > 0 {
		return min(l.before, l.least)
	}
	return l.before
}

// Acknowledgement is a wait until enough nodes are far enough.
type Acknowledgement struct {
	acks    *acks
	nodes   int // how many others; majority: as many as make a majority with this node
	reached func(*peerAck) bool
	moved   bool
	done    chan struct{}
}

// majority stands for as many other voters as make a majority with this node.
const majority = -1

// Done returns a channel that is closed when enough nodes have acknowledged, or the round has moved.
func (w *Acknowledgement) Done() <-chan struct{} { return w.done }

// Moved reports, after Done, that the members changed during the round, which confirms nothing.
func (w *Acknowledgement) Moved() bool { return w.moved }

// End ends the wait, and returns how many voters have acknowledged. The caller must call End.
func (w *Acknowledgement) End() int { return w.acks.forget(w) }

func newAcks(self string, recent time.Duration) *acks {
	return &acks{self: raft.ServerID(self), recent: recent, peers: make(map[raft.ServerID]*peerAck), view: &view{}}
}

// reconfigure goes over to another configuration. What a node that is no member acknowledged is forgotten: as a
// member again it begins anew.
func (a *acks) reconfigure(v *view) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.peers, func(id raft.ServerID, _ *peerAck) bool { return !v.Has(string(id)) })
	for _, m := range v.Members {
		id := raft.ServerID(m.ID)
		if id == a.self {
			continue
		}
		if a.peers[id] == nil {
			a.peers[id] = &peerAck{}
		}
		a.peers[id].voter = m.Voter
	}
	a.view = v
	a.measureQuorum()
	for _, w := range a.waiters {
		w.moved = w.nodes == majority
	}
	a.endWaits()
}

// knows reports whether id is another member.
func (a *acks) knows(id raft.ServerID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.peers[id] != nil
}

// sending returns the round to note when a request that is sent now is acknowledged.
func (a *acks) sending() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.round
}

// agreed returns how far peer's log is known to agree in term; 0: not known.
func (a *acks) agreed(peer raft.ServerID, term uint64) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.peers[peer]; p != nil && p.term == term {
		return p.match
	}
	return 0
}

// shortened is told that peer's log ends at last, before match, up to where the log agreed when the peer was asked.
// What the peer acknowledged is not counted here any more; the result is what to tell, once, or nil.
func (a *acks) shortened(peer raft.ServerID, term, match, last uint64) Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.peers[peer]
	if p == nil || p.term != term || p.match < match {
		return nil // another answer said so before
	}
	e := LogShortened{ID: string(peer), Name: members.Name(string(peer)), LogIndex: last, Acknowledged: p.match}
	p.match, p.notified = 0, 0
	return e
}

// notifying notes that a request on its way to peer has the commit index of term.
func (a *acks) notifying(peer raft.ServerID, term, index uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.peers[peer]; p != nil && p.inTerm(term) {
		p.notified = max(p.notified, index)
	}
}

// unnotified returns the highest committed index that peer's log has, or 0 if peer has got that index already.
func (a *acks) unnotified(peer raft.ServerID, term, committed uint64) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.peers[peer]
	if p == nil || p.term != term {
		return 0
	}
	if index := min(committed, p.match); index > p.notified {
		return index
	}
	return 0
}

// inTerm begins anew in a newer term, and reports whether term is not over.
func (p *peerAck) inTerm(term uint64) bool {
	if term > p.term {
		*p = peerAck{voter: p.voter, term: term, trip: p.trip}
	}
	return term == p.term
}

// note records that peer acknowledged, in term, a request that was sent in
// round. match is 0 for requests that say nothing of the log.
func (a *acks) note(peer raft.ServerID, term, round, match uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.peers[peer]
	if p == nil || !p.inTerm(term) {
		return
	}
	p.round, p.match, p.heard = max(p.round, round), max(p.match, match), time.Now()
	a.endWaits()
}

// took is told how long peer's answer to a heartbeat took.
func (a *acks) took(peer raft.ServerID, d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.peers[peer]; p != nil {
		p.trip.add(d)
	}
	a.measureQuorum()
}

// measureQuorum takes the time of a round trip to the nearest voters that have answered of late: a majority without
// the others is as far away as that. Requires a.mu.
func (a *acks) measureQuorum() {
	since := time.Now().Add(-a.recent)
	var trips []time.Duration
	for _, p := range a.peers { // unordered: the times are sorted
		if p.voter && p.trip.isKnown(since) {
			trips = append(trips, p.trip.get())
		}
	}
	slices.Sort(trips)
	quorum := time.Duration(0)
	if n := a.view.others; 0 < n && n <= len(trips) {
		quorum = trips[n-1]
	}
	a.quorum.Store(int64(quorum))
}

// roundTripTo returns the time of a round trip to peer; 0: it is not known.
func (a *acks) roundTripTo(peer raft.ServerID) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.peers[peer]; p != nil {
		return p.trip.get()
	}
	return 0
}

// endWaits ends the waits that are over.
func (a *acks) endWaits() {
	kept := a.waiters[:0]
	for _, w := range a.waiters {
		if w.moved || a.enough(w) {
			close(w.done)
			continue
		}
		kept = append(kept, w)
	}
	clear(a.waiters[len(kept):])
	a.waiters = kept
}

// enough reports whether enough voters have acknowledged.
func (a *acks) enough(w *Acknowledgement) bool {
	need := a.view.others
	if w.nodes != majority {
		need = min(w.nodes, a.view.otherVoters)
	}
	return a.count(w.reached) >= need
}

// count counts voters.
func (a *acks) count(reached func(*peerAck) bool) int {
	n := 0
	for _, p := range a.peers {
		if p.voter && reached(p) {
			n++
		}
	}
	return n
}

// beginRound starts a leadership check of term. The result is closed when a majority has confirmed
// the term; the caller hands the result to forget in any case.
func (a *acks) beginRound(term uint64) *Acknowledgement {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.round++
	round := a.round
	return a.wait(majority, func(p *peerAck) bool { return p.term == term && p.round >= round })
}

// awaitMatch waits until n others have the log up to index in term, or all other voters.
func (a *acks) awaitMatch(term, index uint64, n int) *Acknowledgement {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wait(n, func(p *peerAck) bool { return p.term == term && p.match >= index })
}

// awaitPeer waits until a voter has the log up to index in term.
func (a *acks) awaitPeer(peer raft.ServerID, term, index uint64) *Acknowledgement {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wait(1, func(p *peerAck) bool { return p == a.peers[peer] && p.term == term && p.match >= index })
}

func (a *acks) wait(nodes int, reached func(*peerAck) bool) *Acknowledgement {
	w := &Acknowledgement{acks: a, nodes: nodes, reached: reached, done: make(chan struct{})}
	if a.enough(w) {
		close(w.done)
	} else {
		a.waiters = append(a.waiters, w)
	}
	return w
}

// forget ends a wait, and returns how many nodes had reached the aim.
func (a *acks) forget(w *Acknowledgement) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, other := range a.waiters {
		if other == w {
			a.waiters = append(a.waiters[:i], a.waiters[i+1:]...)
			break
		}
	}
	return a.count(w.reached)
}

// matches returns, for each of the other members, how far the log is known to agree in term; 0: not
// known.
func (a *acks) matches(term uint64) map[string]uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := make(map[string]uint64, len(a.peers))
	for id, p := range a.peers {
		m[string(id)] = 0
		if p.term == term {
			m[string(id)] = p.match
		}
	}
	return m
}

// installing notes that a snapshot up to index is on its way to peer; 0: it will not arrive.
func (a *acks) installing(peer raft.ServerID, term, index uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.peers[peer]; p != nil && p.inTerm(term) {
		p.snapshot = index
	}
}

// needed returns the entry from which on some member needs the log of this node, which leads in term and has committed
// all up to committed; 0: none does. Members count that a snapshot is on its way to, or that catch up behind one, and
// that have acknowledged something since then. A request names the entry before.
func (a *acks) needed(term, committed uint64, since time.Time) (index uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.peers {
		if p.match >= committed {
			p.snapshot = 0
		}
		if p.term != term || p.snapshot == 0 || p.heard.Before(since) {
			continue
		}
		if from := max(p.snapshot, p.match); index == 0 || from < index {
			index = from
		}
	}
	return index
}

// heardSince returns what a node has acknowledged in term; ok: some acknowledgement is newer than
// since.
func (a *acks) heardSince(peer string, term uint64, since time.Time) (ack peerAck, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.peers[raft.ServerID(peer)]
	if p == nil || p.term != term || p.heard.Before(since) {
		return peerAck{}, false
	}
	return *p, true
}
