package replica

import "time"

// Event is something an operator may want to know. Logs and counters are made
// from events by whoever listens; the replica logs nothing that an event says.
type Event interface{ event() }

// LeadershipGained: this node serves as leader of Term from now on. Took is
// the time from winning the election until it served.
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

// ProposalStalled: an entry proposed by this node has been uncommitted for Age.
type ProposalStalled struct{ Age time.Duration }

// FollowerStalled: this leader finds that the log of follower Name has stood still at LogIndex since Since, although
// entries behind it are committed. LogIndex is 0 for one that has not agreed with this leader yet.
type FollowerStalled struct {
	Name                string
	LogIndex, Committed uint64
	Since               time.Time
}

// FollowerMoves: a follower of which FollowerStalled was told makes progress again, After the time it stood still. It is
// not told when the leadership ends before that: each leader begins anew.
type FollowerMoves struct {
	Name     string
	LogIndex uint64
	After    time.Duration
}

// SnapshotTaken: the state was captured into a snapshot of Bytes.
type SnapshotTaken struct {
	Bytes int64
	Took  time.Duration
	Err   error
}

// Restored: the state was replaced by a snapshot's.
type Restored struct{ Took time.Duration }

// Failed: the node can no longer have the state that others have, and stops.
type Failed struct{ Err error }

func (LeadershipGained) event() {}
func (LeadershipLost) event()   {}
func (LeaderChanged) event()    {}
func (LinkUp) event()           {}
func (LinkDown) event()         {}
func (ProposalStalled) event()  {}
func (FollowerStalled) event()  {}
func (FollowerMoves) event()    {}
func (SnapshotTaken) event()    {}
func (Restored) event()         {}
func (Failed) event()           {}
