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

// acks records what the other members have acknowledged: the prefix of this leader's log that each has, and the last
// leadership check that each confirmed.
//
// A leadership check is a round. It is confirmed when a majority has acknowledged, in this node's term, a request that
// was sent after the round began. Raft's VerifyLeader also counts acknowledgements of earlier requests, so a leader
// that was frozen between sending and receiving could confirm itself and serve a stale read after another's election.
//
// The configuration in effect decides whose acknowledgements count. A round during which the configuration changes
// confirms nothing (see [Acknowledgement.Moved]), and the caller begins another.
type acks struct {
	self raft.ServerID
	// recent is the age up to which a member's round-trip time counts for quorum.
	recent time.Duration

	mu      sync.Mutex
	view    *view
	round   uint64 // number of the newest round
	peers   map[raft.ServerID]*peerAck
	waiters []*Acknowledgement
	// quorum is the round-trip time to the nearest voters that make a majority with this node, in ns; 0 if unknown.
	quorum atomic.Int64
}

// peerAck is another member's acknowledgement in the newest term of that node.
type peerAck struct {
	voter    bool
	term     uint64
	round    uint64 // the newest round that had begun when an acknowledged request was sent
	match    uint64 // index up to which the member's log agrees with the leader's
	snapshot uint64 // index of the snapshot being sent, or behind which the member catches up; 0 if none
	notified uint64 // the highest commit index that was sent to the member
	heard    time.Time
	trip     minTime
}

// minTime is the minimum of the last tripTimes to 2*tripTimes times, or 0 if there are fewer. Load lengthens most
// times; only a longer distance lengthens the minimum.
type minTime struct {
	least, before time.Duration
	count         int
	at            time.Time // of the last time added
}

const tripTimes = 16

func (l *minTime) add(d time.Duration) {
	l.at = time.Now()
	if l.count%tripTimes == 0 || d < l.least {
		l.least = d
	}
	if l.count++; l.count%tripTimes == 0 {
		l.before = l.least
	}
}

// isKnown reports whether there are enough times and the last was added after since.
func (l *minTime) isKnown(since time.Time) bool { return l.count >= tripTimes && l.at.After(since) }

func (l *minTime) get() time.Duration {
	if l.count%tripTimes > 0 {
		return min(l.before, l.least)
	}
	return l.before
}

// Acknowledgement is a wait until enough voters satisfy a condition.
type Acknowledgement struct {
	acks    *acks
	nodes   int // number of other voters, or majority
	reached func(*peerAck) bool
	moved   bool
	done    chan struct{}
}

// majority means as many other voters as make a majority with this node.
const majority = -1

// Done returns a channel that is closed when enough voters have acknowledged or the members have changed.
func (w *Acknowledgement) Done() <-chan struct{} { return w.done }

// Moved reports, after Done, that the members changed during the round, so that it confirms nothing.
func (w *Acknowledgement) Moved() bool { return w.moved }

// End ends the wait and returns the number of voters that have acknowledged. Each wait must be ended.
func (w *Acknowledgement) End() int { return w.acks.endWait(w) }

func newAcks(self string, recent time.Duration) *acks {
	return &acks{self: raft.ServerID(self), recent: recent, peers: make(map[raft.ServerID]*peerAck), view: &view{}}
}

// reconfigure sets the configuration in effect and drops the acknowledgements of nodes that are no longer members.
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

// hasPeer reports whether id is another member.
func (a *acks) hasPeer(id raft.ServerID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.peers[id] != nil
}

// currentRound returns the round to pass to note when a request that is sent now is acknowledged.
func (a *acks) currentRound() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.round
}

// matchOf returns the index up to which peer's log agrees with the leader's in term, or 0 if unknown.
func (a *acks) matchOf(peer raft.ServerID, term uint64) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.peers[peer]; p != nil && p.term == term {
		return p.match
	}
	return 0
}

// noteShortened records that peer's log ends at last, before match, up to which the log agreed when the peer was asked.
// It discards the peer's acknowledgements. It returns the event to report, or nil if it was returned before.
func (a *acks) noteShortened(peer raft.ServerID, term, match, last uint64) Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.peers[peer]
	if p == nil || p.term != term || p.match < match {
		return nil // an earlier answer reported it
	}
	e := LogShortened{ID: string(peer), Name: members.Name(string(peer)), LogIndex: last, Acknowledged: p.match}
	p.match, p.notified = 0, 0
	return e
}

// noteNotified records that a request being sent to peer has the commit index of term.
func (a *acks) noteNotified(peer raft.ServerID, term, index uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.peers[peer]; p != nil && p.inTerm(term) {
		p.notified = max(p.notified, index)
	}
}

// unnotified returns the highest committed index in peer's log, or 0 if peer was already sent that commit index.
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

// inTerm resets p if term is newer, and reports whether term is p's newest.
func (p *peerAck) inTerm(term uint64) bool {
	if term > p.term {
		*p = peerAck{voter: p.voter, term: term, trip: p.trip}
	}
	return term == p.term
}

// note records that peer acknowledged, in term, a request that was sent in round. match is 0 if the request confirms no
// part of the log.
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

// noteRoundTrip records the round-trip time of a heartbeat to peer.
func (a *acks) noteRoundTrip(peer raft.ServerID, d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.peers[peer]; p != nil {
		p.trip.add(d)
	}
	a.measureQuorum()
}

// measureQuorum sets quorum from the nearest voters that answered recently. Requires a.mu.
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

// roundTripTo returns the round-trip time to peer, or 0 if unknown.
func (a *acks) roundTripTo(peer raft.ServerID) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.peers[peer]; p != nil {
		return p.trip.get()
	}
	return 0
}

// endWaits closes the waits that are satisfied or moved. Requires a.mu.
func (a *acks) endWaits() {
	kept := a.waiters[:0]
	for _, w := range a.waiters {
		if w.moved || a.isSatisfied(w) {
			close(w.done)
			continue
		}
		kept = append(kept, w)
	}
	clear(a.waiters[len(kept):])
	a.waiters = kept
}

// isSatisfied reports whether enough voters have reached w's condition. Requires a.mu.
func (a *acks) isSatisfied(w *Acknowledgement) bool {
	need := a.view.others
	if w.nodes != majority {
		need = min(w.nodes, a.view.otherVoters)
	}
	return a.count(w.reached) >= need
}

// count returns the number of other voters for which reached is true. Requires a.mu.
func (a *acks) count(reached func(*peerAck) bool) int {
	n := 0
	for _, p := range a.peers {
		if p.voter && reached(p) {
			n++
		}
	}
	return n
}

// beginRound starts a leadership check of term. The wait is done when a majority has confirmed the term.
func (a *acks) beginRound(term uint64) *Acknowledgement {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.round++
	round := a.round
	return a.wait(majority, func(p *peerAck) bool { return p.term == term && p.round >= round })
}

// awaitMatch returns a wait until n other voters, or all if there are fewer, have the log up to index in term.
func (a *acks) awaitMatch(term, index uint64, n int) *Acknowledgement {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wait(n, func(p *peerAck) bool { return p.term == term && p.match >= index })
}

// awaitPeer returns a wait until the voter peer has the log up to index in term.
func (a *acks) awaitPeer(peer raft.ServerID, term, index uint64) *Acknowledgement {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wait(1, func(p *peerAck) bool { return p == a.peers[peer] && p.term == term && p.match >= index })
}

func (a *acks) wait(nodes int, reached func(*peerAck) bool) *Acknowledgement {
	w := &Acknowledgement{acks: a, nodes: nodes, reached: reached, done: make(chan struct{})}
	if a.isSatisfied(w) {
		close(w.done)
	} else {
		a.waiters = append(a.waiters, w)
	}
	return w
}

// endWait removes a wait and returns the number of voters that have reached its condition.
func (a *acks) endWait(w *Acknowledgement) int {
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

// matches returns each other member's match index in term, 0 if unknown.
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

// noteSnapshot records that a snapshot up to index is being sent to peer, or with index 0 that sending it failed.
func (a *acks) noteSnapshot(peer raft.ServerID, term, index uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.peers[peer]; p != nil && p.inTerm(term) {
		p.snapshot = index
	}
}

// needed returns the lowest index of this leader's log that a lagging member still needs, or 0 if none does. A member
// lags while it receives a snapshot and until it has caught up from there to committed. It counts only if it has
// acknowledged something in term since the given time. The index is that of the entry before the next one to send.
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

// heardSince returns the acknowledgement of peer in term. ok is false if peer acknowledged nothing in term after since.
func (a *acks) heardSince(peer string, term uint64, since time.Time) (ack peerAck, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.peers[raft.ServerID(peer)]
	if p == nil || p.term != term || p.heard.Before(since) {
		return peerAck{}, false
	}
	return *p, true
}
