package replica

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/members"
)

// leaderTerm is one leadership of this node, from when it may serve until it ends.
type leaderTerm struct {
	term  uint64
	clock *clusterClock
	gone  chan struct{} // closed when the leadership is over

	// inFlight counts entries that were given to raft and are not applied yet.
	inFlight atomic.Int32
	landed   chan struct{} // inFlight fell
	// progress is when inFlight last fell, or rose from none; nanoseconds of Unix time.
	progress atomic.Int64
	wanted   atomic.Int64 // cluster time that an entry is wanted to reach
	stamped  int64        // the newest stamp proposed; the proposer's own
	version  byte         // the newest version proposed; the proposer's own
}

// leadership watches raft and makes this node a leader that serves, a follower
// that forwards, or a node that waits for a leader.
//
// All changes are made on one goroutine. Nothing else attaches the proposer to
// the writes, or tells the link which leader to follow.
type leadership struct {
	r       *Replica
	changed chan struct{} // something about raft changed

	asserted   uint64 // the last term in which this node proposed a first entry
	restart    atomic.Bool
	assertedAt time.Time
	declined   *leaderTerm // elected, and in quarantine
	leader     string      // ID
	seenTerm   uint64      // the term in which leader was seen to lead
}

func newLeadership(r *Replica) *leadership { return &leadership{r: r, changed: make(chan struct{}, 1)} }

// look has the leadership look at what raft says.
func (ls *leadership) look() { notify(ls.changed) }

// serveAnew has this node serve as leader anew: all that waits is given to raft again.
func (ls *leadership) serveAnew() {
	ls.restart.Store(true)
	ls.look()
}

func (ls *leadership) run(ctx context.Context) error {
	defer ls.lose()
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		ls.update()
		if again.Stop(); ls.asserting() {
			again.Reset(assertAgain)
		} else if ls.declined != nil {
			again.Reset(ls.r.config.ElectionTimeout)
		}
		select {
		case <-ls.changed:
		case <-again.C:
			ls.reassert()
		case <-ctx.Done():
			return nil
		}
	}
}

// update compares what the node does with what raft says.
func (ls *leadership) update() {
	term, leading := ls.r.node.Leading()
	again := ls.restart.Swap(false)
	quarantined := ls.r.quarantined()
	if l := ls.r.serving.Load(); l != nil && (!leading || l.term != term || again || quarantined) {
		ls.lose()
		ls.asserted = 0
	}
	ls.declineOver(term, leading)
	switch {
	case !leading:
		ls.r.fromFollowers.Shut()
		ls.follow()
	case quarantined:
		ls.decline(term)
	case ls.asserted != term:
		ls.assert(term)
	case ls.r.serving.Load() == nil && ls.r.state.term.Load() == term:
		ls.serve(term)
	}
}

// assert proposes the first entry of a new leadership. Once this entry is applied, every entry that
// former leaders committed is applied, too.
//
// The entry is an empty entry of ours and not raft's Barrier. When raft is shut down, the future of
// a Barrier can stay without an answer for ever, and a caller that waits for the future then hangs,
// too. The stamp is not above cluster time, so that no lease ends.
func (ls *leadership) assert(term uint64) {
	ls.asserted, ls.assertedAt = term, time.Now()
	ls.r.toLeader.Follow("")
	ls.r.fromFollowers.Open(term)
	ls.proposeFirst(term)
}

func (ls *leadership) proposeFirst(term uint64) {
	stamp, offset := ls.r.machine.Clock()
	ls.r.propose(term, protocol.NewEntry(nil, ls.r.firstVersion(), stamp, offset, ls.r.config.MaxMemoryBytes).Bytes(),
		uncounted)
}

// assertAgain is the time between two checks whether the first entry got lost.
const assertAgain = 10 * time.Millisecond

// asserting reports whether this node has won an election and does not serve yet.
func (ls *leadership) asserting() bool {
	return ls.r.node.Leads(ls.asserted) && ls.r.serving.Load() == nil
}

// reassert proposes the first entry again if raft has applied the whole log without this entry.
// Raft refuses the entries of a leader that led before and began a hand-over, as long as the asked
// node's answer is not there. Raft then tells only the future.
func (ls *leadership) reassert() {
	if ls.asserting() && ls.r.state.term.Load() != ls.asserted && ls.r.node.Applied() == ls.r.node.Last() {
		ls.proposeFirst(ls.asserted)
	}
}

// serve starts to take commands as leader of term.
func (ls *leadership) serve(term uint64) {
	stamp, offset := ls.r.machine.Clock()
	l := &leaderTerm{
		term:    term,
		clock:   newClusterClock(ls.r.config.Clock, ls.r.config.ClockStep, stamp, offset),
		gone:    make(chan struct{}),
		landed:  make(chan struct{}, 1),
		stamped: stamp,
		version: ls.r.firstVersion(),
	}
	ls.r.serving.Store(l)
	ls.r.reader.serves.open()
	ls.r.reader.elsewhere.divert(errReroute)
	ls.r.writes.Attach(l, ls.r.proposer.wake)
	notify(ls.r.proposer.wake) // all members may be able to use a newer version
	notify(ls.r.ticker.wake)
	ls.see(ls.r.config.ID, term)
	ls.r.event(LeadershipGained{Term: term, Took: time.Since(ls.assertedAt)})
}

// lose ends this node's leadership. What was in flight stays in the queue, and
// is routed again when there is a new leader, or completed when the log says so.
func (ls *leadership) lose() {
	l := ls.r.serving.Load()
	if l == nil {
		return
	}
	ls.r.reader.elsewhere.divert(nil)
	ls.r.reader.serves.shut()
	ls.r.serving.Store(nil)
	close(l.gone)
	ls.r.writes.Detach(l)
	ls.r.fromFollowers.Shut()
	ls.r.event(LeadershipLost{Term: l.term})
}

// follow has the link lead where raft says the leader is.
func (ls *leadership) follow() {
	term, leader := ls.r.node.Leader()
	if leader == ls.r.config.ID {
		leader = "" // not yet, or no longer
	}
	ls.see(leader, term)
	ls.r.toLeader.Follow(leader)
}

func (ls *leadership) see(leader string, term uint64) {
	if leader != "" {
		ls.r.waiting.led.Store(true)
	}
	if leader == ls.leader && (term == ls.seenTerm || leader == "") {
		return
	}
	ls.leader, ls.seenTerm = leader, term
	ls.r.leaders.see(leader, ls.r.addresses.all())
	ls.r.event(LeaderChanged{Leader: members.Name(leader), Term: term})
}
