package replica

import (
	"time"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/server/raftnode"
)

// Event is an event for operators. The listener logs and counts events; the replica does not log them.
type Event = raftnode.Event

// The events of raftnode.
type (
	SnapshotTaken   = raftnode.SnapshotTaken
	FollowerStalled = raftnode.FollowerStalled
	FarApart        = raftnode.FarApart
	FollowerMoves   = raftnode.FollowerMoves
	LogShortened    = raftnode.LogShortened
	SnapshotDamaged = raftnode.SnapshotDamaged
)

// LeadershipGained: this node serves as leader of Term from now on. Took is the time since it won the election.
type LeadershipGained struct {
	Term uint64
	Took time.Duration
}

// LeadershipLost: this node no longer leads Term.
type LeadershipLost struct{ Term uint64 }

// LeaderChanged: this node follows another leader, or knows none, and Leader is empty.
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

// LeadershipDeclined: this node was elected while in quarantine, or led when it was quarantined, and transfers the
// leadership without serving.
type LeadershipDeclined struct{ Term uint64 }

// VersionRaised: this leader has the cluster adopt a newer version of the log, which all members can use.
type VersionRaised struct{ From, To byte }

// DiskFull: disks of members are nearly full, or have room again. Refuses tells whether commands that may make the state
// grow are refused. Members are those without room; Free and Reserve are the bytes of this node's disk.
type DiskFull struct {
	Members       []string
	Refuses       bool
	Free, Reserve uint64
}

// ProposalStalled: an entry that this node proposed has been uncommitted for Age. Members has all members, with the
// indexes up to which their logs agree with this node's, which ends at LastLog.
type ProposalStalled struct {
	Age                time.Duration
	Committed, LastLog uint64
	Members            []Member
}

// LeadershipGivenUp: no other voter has acknowledged an entry of this leader for Age, though all heard its heartbeats.
// So it asked them by name to stand for election, until one was elected.
type LeadershipGivenUp struct {
	Term  uint64
	Age   time.Duration
	Asked []string
}

// WaitersDropped: Node was silent for so long that its waiters were removed from their queues.
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

// Restored: a snapshot has replaced the state. It has the entries up to Index. The node had applied those up to From,
// or none since its start if From is 0.
type Restored struct {
	From, Index uint64
	Took        time.Duration
}

// Failed: the node cannot have the state of the others any more, and stops.
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
func (DiskFull) Event() {}

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
