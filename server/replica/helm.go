package replica

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// lead is one leadership of this node, from when it may serve until it ends.
type lead struct {
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
}

// helm watches raft and turns the node with it: into a leader that serves, into
// a follower that forwards, or into a node that waits for a leader.
//
// All turns are made on its one goroutine. Nobody else attaches the proposer to
// the writes, or tells the link whom to follow.
type helm struct {
	r    *Replica
	turn chan struct{} // something about raft changed

	asserted   uint64 // the term in which this node proposed its first entry
	restart    atomic.Bool
	assertedAt time.Time
	leader     string
	leaderTerm uint64
}

func newHelm(r *Replica) *helm { return &helm{r: r, turn: make(chan struct{}, 1)} }

func (h *helm) run(ctx context.Context) error {
	defer h.lose()
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		h.steer()
		if again.Stop(); h.asserting() {
			again.Reset(assertAgain)
		}
		select {
		case <-h.turn:
		case <-again.C:
			h.reassert()
		case <-ctx.Done():
			return nil
		}
	}
}

// steer compares what the node does with what raft says.
func (h *helm) steer() {
	term, leading := h.r.node.Leading()
	again := h.restart.Swap(false)
	if l := h.r.serving.Load(); l != nil && (!leading || l.term != term || again) {
		h.lose()
		h.asserted = 0
	}
	switch {
	case !leading:
		h.r.fromFollowers.Shut()
		h.follow()
	case h.asserted != term:
		h.assert(term)
	case h.r.serving.Load() == nil && h.r.state.term.Load() == term:
		h.serve(term)
	}
}

// assert proposes the first entry of a new leadership. Once it is applied, so
// is everything that former leaders committed.
//
// It is an empty entry of ours and not raft's Barrier, because the future of a
// Barrier can stay without an answer for ever when raft is shut down, and
// whoever waits for it then, too. Its stamp is not above cluster time, so that it ends no lease.
func (h *helm) assert(term uint64) {
	h.asserted, h.assertedAt = term, time.Now()
	h.r.toLeader.Follow("")
	h.r.fromFollowers.Open(term)
	h.proposeFirst(term)
}

func (h *helm) proposeFirst(term uint64) {
	stamp, offset := h.r.machine.Clock()
	h.r.propose(term, protocol.NewEntry(nil, stamp, offset, h.r.config.MemoryLimitBytes).Bytes(), uncounted)
}

// assertAgain is how often it is looked whether the first entry got lost.
const assertAgain = 10 * time.Millisecond

// asserting reports whether this node has won an election and does not serve yet.
func (h *helm) asserting() bool {
	return h.r.node.Leads(h.asserted) && h.r.serving.Load() == nil
}

// reassert proposes the first entry again if raft has applied all that it has and
// the entry is not there. Raft refuses entries, and tells only the future, of a leader that
// was one before, began to hand over, and is still waiting for the answer of whom it asked.
func (h *helm) reassert() {
	if h.asserting() && h.r.state.term.Load() != h.asserted && h.r.node.Applied() == h.r.node.Last() {
		h.proposeFirst(h.asserted)
	}
}

// serve starts to take commands as leader of term.
func (h *helm) serve(term uint64) {
	stamp, offset := h.r.machine.Clock()
	l := &lead{
		term:    term,
		clock:   newClusterClock(h.r.config.Clock, h.r.config.Timing.ClockStep, stamp, offset),
		gone:    make(chan struct{}),
		landed:  make(chan struct{}, 1),
		stamped: stamp,
	}
	h.r.serving.Store(l)
	h.r.serves.open()
	h.r.reads.divert(errReroute)
	h.r.writes.Attach(l, h.r.proposer.wake)
	notify(h.r.ticker.wake)
	h.see(h.r.config.Name, term)
	h.r.event(LeadershipGained{Term: term, Took: time.Since(h.assertedAt)})
}

// lose ends this node's leadership. What was in flight stays in the table, and
// is routed again when there is a new leader, or completed when the log says so.
func (h *helm) lose() {
	l := h.r.serving.Load()
	if l == nil {
		return
	}
	h.r.reads.divert(nil)
	h.r.serves.shut()
	h.r.serving.Store(nil)
	close(l.gone)
	h.r.writes.Detach(l)
	h.r.fromFollowers.Shut()
	h.r.event(LeadershipLost{Term: l.term})
}

// follow has the link lead where raft says the leader is.
func (h *helm) follow() {
	term, leader := h.r.node.Leader()
	if leader == h.r.config.Name {
		leader = "" // not yet, or no longer
	}
	h.see(leader, term)
	h.r.toLeader.Follow(leader)
}

func (h *helm) see(leader string, term uint64) {
	if leader == h.leader && (term == h.leaderTerm || leader == "") {
		return
	}
	h.leader, h.leaderTerm = leader, term
	h.r.event(LeaderChanged{Leader: leader, Term: term})
}

// propose gives an entry to raft. Uncounted entries are those that lead.inFlight does not count; when they are
// applied this node may serve already.
func (r *Replica) propose(term uint64, entry []byte, flags ...byte) {
	if answersBeforeCommit {
		early := sink{r: r}
		_ = r.machine.Apply(entry, &early)
		early.flush()
	}
	r.node.Propose(term, entry, flags...)
}

// uncounted is the flag of a leadership's first entry.
const uncounted byte = 1
