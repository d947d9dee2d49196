package replica

import (
	"time"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/server/raftnode"
)

// Event is something an operator may want to know. Logs and counters are made
// from events by the listener; the replica logs nothing that an event says.
type Event = raftnode.Event

// What raftnode tells.
type (
	SnapshotTaken   = raftnode.SnapshotTaken
	FollowerStalled = raftnode.FollowerStalled
	FarApart        = raftnode.FarApart
	FollowerMoves   = raftnode.FollowerMoves
	LogShortened    = raftnode.LogShortened
	SnapshotDamaged = raftnode.SnapshotDamaged
)

// LeadershipGained: this node serves as leader of Term from now on. Took is the time between
// winning the election and serving.
type LeadershipGained struct {
	Term uint64
	Took time.Duration
}

// LeadershipLost: this node no longer leads Term.
type LeadershipLost struct{ Term uint64 }

// LeaderChanged: this node follows another leader, or knows none (Leader is empty).
type LeaderChanged struct {
	Leader string
	Term   uint64
}

// LinkUp and LinkDown: this node can, or can no longer, forward to the leader.
type (
	LinkUp   struct{ Leader string }
	LinkDown struct {
		Leader string
		Err    error
	}
)

// LeadershipDeclined: this node was elected in quarantine, or led when it came there, and hands over without serving.
type LeadershipDeclined struct{ Term uint64 }

// VersionRaised: this leader has the cluster go over to a newer version of the log, as all members can use it.
type VersionRaised struct{ From, To byte }

// ProposalStalled: an entry proposed by this node has been uncommitted for Age. Members are all, with how far their
// logs are known to agree with this node's, up to LastLog.
type ProposalStalled struct {
	Age                time.Duration
	Committed, LastLog uint64
	Members            []Member
}

// LeadershipGivenUp: no other voter had acknowledged anything to this leader for Age, while all heard its heartbeats.
// So it had them stand for election, by name, until one was elected.
type LeadershipGivenUp struct {
	Term  uint64
	Age   time.Duration
	Asked []string
}

// WaitersDropped: Node was silent for so long that the clients that wait there left the queues.
type WaitersDropped struct {
	Node  string
	After time.Duration
}

// LockSlow: a client of this node waited long for a lock, or held a lock for most of its lease.
type LockSlow struct {
	DB  int
	Key string
	event.LockNews
}

// Restored: the state was replaced by a snapshot's, which has the entries up to Index. The node had applied those up to
// From; 0: none in this run.
type Restored struct {
	From, Index uint64
	Took        time.Duration
}

// Failed: the node can no longer have the state that others have, and stops.
type Failed struct{ Err error }

// Event implements [Event].
func (LeadershipGained) Event() {}

// Event implements [Event].
func (LeadershipLost) Event() {}

// Event implements [Event].
func (LeaderChanged) Event() {}

// Event implements [Event].
func (LinkUp) Event() {}

// Event implements [Event].
func (LinkDown) Event() {}

// Event implements [Event].
func (VersionRaised) Event() {}

// Event implements [Event].
func (ProposalStalled) Event() {}

// Event implements [Event].
func (LeadershipGivenUp) Event() {}

// Event implements [Event].
func (LeadershipDeclined) Event() {}

// Event implements [Event].
func (WaitersDropped) Event() {}

// Event implements [Event].
func (LockSlow) Event() {}

// Event implements [Event].
func (Restored) Event() {}

// Event implements [Event].
func (Failed) Event() {}
