package replica

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/server/forward"
	"github.com/holdfast/holdfast/server/raftnode"
)

// leadership watches raft and makes this node a leader that serves, a follower
// that forwards, or a node that waits for a leader.
//
// All changes are made on one goroutine. Nothing else attaches the proposer to
// the writes, or tells the link which leader to follow.
type leadership struct {
	leadershipConfig
	node  *raftnode.Node // set after the other parts: raft calls poke while it is opened
	noted chan struct{}  // something about raft changed

	asserted   uint64 // the last term in which this node proposed a first entry
	restart    atomic.Bool
	assertedAt time.Time
	declined   *leaderTerm // elected, and in quarantine
	leader     string      // ID
	seenTerm   uint64      // the term in which leader was seen to lead
}

// leadershipConfig is what the leadership is handed.
type leadershipConfig struct {
	id              string // this node's
	electionTimeout time.Duration
	serving         *atomic.Pointer[leaderTerm]
	givingUp        *atomic.Bool // another voter is asked to lead
	reader          *reader
	writes          *queue
	toLeader        *forward.Client
	fromFollowers   *forward.Receiver
	// proposer and ticker wake those parts.
	proposer, ticker chan<- struct{}
	// version is the version of a leadership's first entry.
	version func() byte
	// cluster is cluster time and the wall offset by the state, and clock goes on from there; both in milliseconds.
	cluster func() (stampMillis, offsetMillis int64)
	clock   func(stampMillis, offsetMillis int64) *clusterClock
	// propose proposes an empty entry, and applied is the term of the newest entry in the state.
	propose func(term uint64, version byte)
	applied *atomic.Uint64
	// led is called at each update while a leader is known, and changed at each change of leader or term.
	led     func()
	changed func(leader string, term uint64)
	event   func(Event)
}

func newLeadership(c leadershipConfig) *leadership {
	return &leadership{leadershipConfig: c, noted: make(chan struct{}, 1)}
}

// poke has run read what raft says.
func (ls *leadership) poke() { notify(ls.noted) }

// serveAnew has this node serve as leader anew: all that waits is given to raft again.
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

// update compares what the node does with what raft says.
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

// assert proposes the first entry of a new leadership. Once this entry is applied, every entry that
// former leaders committed is applied, too.
//
// The entry is an empty entry of ours and not raft's Barrier. When raft is shut down, the future of
// a Barrier can stay without an answer for ever, and a caller that waits for the future then hangs,
// too.
func (ls *leadership) assert(term uint64) {
	ls.asserted, ls.assertedAt = term, time.Now()
	ls.toLeader.Follow("")
	ls.fromFollowers.Open(term)
	ls.proposeFirst(term)
}

func (ls *leadership) proposeFirst(term uint64) { ls.propose(term, ls.version()) }

// serve starts to take commands as leader of term.
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

// lose ends this node's leadership. What was in flight stays in the queue, and
// is routed again when there is a new leader, or completed when the log says so.
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

// follow has the link lead where raft says the leader is.
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

// decline has another voter lead in the place of this node, which was elected in quarantine, or led when it came there.
// The other gets what it lacks of the log before.
func (ls *leadership) decline(term uint64) {
	ls.toLeader.Follow("")
	ls.fromFollowers.Shut()
	if ls.declined == nil {
		ls.declined = &leaderTerm{term: term, gone: make(chan struct{})}
		ls.event(LeadershipDeclined{Term: term})
	}
	l := ls.declined
	if !ls.givingUp.CompareAndSwap(false, true) {
		return
	}
	go func() { // ends with the leadership or the node, or after some election timeouts
		defer ls.givingUp.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), declineTimeouts*ls.electionTimeout)
		defer cancel()
		_ = ls.node.Decline(ctx, l.gone) // gone says whether another was elected; else it is tried again
	}()
}

// declineTimeouts is how many election timeouts an answer to a node in quarantine may take: connections are made for
// it, while raft's own stand.
const declineTimeouts = 10

// declineOver forgets a declined leadership that is over.
func (ls *leadership) declineOver(term uint64, leading bool) {
	if l := ls.declined; l != nil && (!leading || l.term != term) {
		close(l.gone)
		ls.declined = nil
	}
}
