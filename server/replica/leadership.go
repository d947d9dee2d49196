package replica

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/server/forward"
	"github.com/holdfast/holdfast/server/raftnode"
)

// leadership watches raft, and makes this node a leader that serves, a follower that forwards, or a node that waits for
// a leader.
//
// One goroutine makes all changes. Nothing else attaches the proposer to the writes, or sets the leader of the link.
type leadership struct {
	leadershipConfig
	node  *raftnode.Node // set after the other parts, since raft calls poke while it is opened
	noted chan struct{}  // signals a change of raft

	asserted   uint64 // the last term in which this node proposed its first entry
	restart    atomic.Bool
	assertedAt time.Time
	declined   *leaderTerm // the leadership that this node declines, since it is in quarantine
	leader     string      // the leader's ID
	seenTerm   uint64      // the term of leader
}

// leadershipConfig has the functions and values that the leadership needs.
type leadershipConfig struct {
	id              string // this node's ID
	electionTimeout time.Duration
	serving         *atomic.Pointer[leaderTerm]
	askOthers       func(ask func()) // has ask run aside, unless one runs already
	reader          *reader
	writes          *queue
	toLeader        *forward.Client
	fromFollowers   *forward.Receiver
	// proposer and ticker wake these parts.
	proposer, ticker chan<- struct{}
	// version returns the version of a leadership's first entry.
	version func() byte
	// cluster returns cluster time and the wall offset of the state, in milliseconds. A leader's clock continues from
	// them.
	cluster func() (stampMillis, offsetMillis int64)
	clock   func(stampMillis, offsetMillis int64) *clusterClock
	// propose proposes an empty entry. applied is the term of the newest entry in the state.
	propose func(term uint64, version byte)
	applied *atomic.Uint64
	// led is called at each update while there is a leader, and changed at each change of leader or term.
	led     func()
	changed func(leader string, term uint64)
	event   func(Event)
}

func newLeadership(c leadershipConfig) *leadership {
	return &leadership{leadershipConfig: c, noted: make(chan struct{}, 1)}
}

// poke has run read raft's state.
func (ls *leadership) poke() { notify(ls.noted) }

// serveAnew has the leader serve as if newly elected: it passes all waiting batches to raft again.
func (ls *leadership) serveAnew() {
	ls.restart.Store(true)
	ls.poke()
}

func (ls *leadership) run(ctx context.Context) error {
	defer ls.lose()
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		ls.update()
		if again.Stop(); ls.declined != nil {
			again.Reset(ls.electionTimeout)
		}
		select {
		case <-ls.noted:
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// update adapts the node to raft's state.
func (ls *leadership) update() {
	term, leading := ls.node.Leading()
	again := ls.restart.Swap(false)
	quarantined, _ := ls.node.Quarantined()
	if l := ls.serving.Load(); l != nil && (!leading || l.term != term || again || quarantined) {
		ls.lose()
		ls.asserted = 0
	}
	ls.declineOver(term, leading)
	switch {
	case !leading:
		ls.fromFollowers.Shut()
		ls.follow()
	case quarantined:
		ls.decline(term)
	default:
		if ls.asserted != term {
			ls.assert(term)
		}
		if ls.serving.Load() == nil && ls.applied.Load() == term {
			ls.serve(term)
		}
	}
}

// assert proposes the first entry of a new leadership. Once this entry is applied, so is every entry that former
// leaders have committed.
//
// The entry is an empty entry, and not raft's Barrier: at a shutdown of raft, the future of a Barrier may never
// complete, and its caller would hang.
func (ls *leadership) assert(term uint64) {
	ls.asserted, ls.assertedAt = term, time.Now()
	ls.toLeader.Follow("")
	ls.fromFollowers.Open(term)
	ls.proposeFirst(term)
}

func (ls *leadership) proposeFirst(term uint64) { ls.propose(term, ls.version()) }

// serve begins to serve as leader of term.
func (ls *leadership) serve(term uint64) {
	stamp, offset := ls.cluster()
	l := &leaderTerm{
		term:    term,
		clock:   ls.clock(stamp, offset),
		gone:    make(chan struct{}),
		since:   time.Now(),
		landed:  make(chan struct{}, 1),
		stamped: stamp,
		version: ls.version(),
	}
	ls.serving.Store(l)
	ls.reader.serves.open()
	ls.reader.elsewhere.divert(errReroute)
	ls.writes.Attach(l, ls.proposer)
	notify(ls.proposer) // all members may be able to use a newer version
	notify(ls.ticker)
	ls.see(ls.id, term)
	ls.event(LeadershipGained{Term: term, Took: time.Since(ls.assertedAt)})
}

// lose ends this node's leadership. Batches in flight stay in the queue. They are routed again to the next leader, or
// completed when the log has them.
func (ls *leadership) lose() {
	l := ls.serving.Load()
	if l == nil {
		return
	}
	ls.reader.elsewhere.divert(nil)
	ls.reader.serves.shut()
	ls.serving.Store(nil)
	close(l.gone)
	ls.writes.Detach(l)
	ls.fromFollowers.Shut()
	ls.event(LeadershipLost{Term: l.term})
}

// follow sets the leader of the link.
func (ls *leadership) follow() {
	term, leader := ls.node.Leader()
	if leader == ls.id {
		leader = "" // not yet, or no longer
	}
	ls.see(leader, term)
	ls.toLeader.Follow(leader)
}

func (ls *leadership) see(leader string, term uint64) {
	if leader != "" {
		ls.led()
	}
	if leader == ls.leader && (term == ls.seenTerm || leader == "") {
		return
	}
	ls.leader, ls.seenTerm = leader, term
	ls.changed(leader, term)
}

// decline has another voter lead instead of this node, which is in quarantine. The other voter first gets the entries
// that it lacks.
func (ls *leadership) decline(term uint64) {
	ls.toLeader.Follow("")
	ls.fromFollowers.Shut()
	if ls.declined == nil {
		ls.declined = &leaderTerm{term: term, gone: make(chan struct{})}
		ls.event(LeadershipDeclined{Term: term})
	}
	l := ls.declined
	ls.askOthers(func() { // ends with the leadership or the node, or after some election timeouts
		ctx, cancel := context.WithTimeout(context.Background(), declineTimeouts*ls.electionTimeout)
		defer cancel()
		_ = ls.node.Decline(ctx, l.gone) // gone tells whether another was elected; otherwise decline runs again
	})
}

// declineTimeouts bounds the time of an answer to a node in quarantine, in election timeouts: new connections are made
// for it, while raft's own connections are stuck.
const declineTimeouts = 10

// declineOver drops a declined leadership that has ended.
func (ls *leadership) declineOver(term uint64, leading bool) {
	if l := ls.declined; l != nil && (!leading || l.term != term) {
		close(l.gone)
		ls.declined = nil
	}
}
