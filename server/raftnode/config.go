package raftnode

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer/wire"
)

// Config is what a node needs from the owner. All fields must be set.
type Config struct {
	// ID is this node's, and never changes: another folder is another node.
	ID string
	// Bootstrap are the first members of a cluster, this node among them: an empty store is made to begin so. Without
	// them an empty store stays empty until a leader adds this node.
	Bootstrap []members.Member

	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore

	// Raft and Append are raft's own streams of connections: Append carries AppendEntries, Raft the rest. What
	// they dial is the ID of a node.
	Raft   raft.StreamLayer
	Append wire.Stream
	// Dial connects to another node's listener for proposals, see [Node.AnswerProposal].
	Dial func(ctx context.Context, id string) (net.Conn, error)

	Timing
	SnapshotPolicy

	// Quarantined: the node's state differed from the other members' before it ended. See [Node.Quarantine].
	Quarantined bool

	Logger     *slog.Logger
	RaftLogger hclog.Logger

	// Machine is driven by raft.
	Machine Machine
	// OnChange is called after raft's role, term or leader changed, and must be quick.
	OnChange func()
	// OnConfiguration is called after the members, their addresses or their votes changed, or the change was found
	// committed, and must be quick: raft waits.
	OnConfiguration func()
	// OnRemoved is called when this node finds that it is a member no more, and must be quick.
	OnRemoved func()
	// OnEvent is told what an operator may want to know, and must be quick, and safe for many
	// goroutines.
	OnEvent func(Event)
	// Fail is called when the node cannot go on, and must be quick, and safe for many goroutines.
	Fail func(error)
}

// Timing is raft's.
type Timing struct {
	// HeartbeatTimeout: a follower that hears nothing from a leader for one to two of
	// these starts an election.
	HeartbeatTimeout time.Duration
	// ElectionTimeout: a candidate starts over after one to two of these.
	ElectionTimeout time.Duration
	// LeaseTimeout: a leader that hears nothing from a majority for so long steps down.
	LeaseTimeout time.Duration
	// CommitTimeout: when nothing is proposed, followers learn of the last commits after one to two of these.
	CommitTimeout time.Duration
}

// SnapshotPolicy says when the log is cut.
type SnapshotPolicy struct {
	// SnapshotThreshold, SnapshotBytes: a snapshot is taken after so many log entries or so many
	// bytes of them, whichever comes first.
	SnapshotThreshold uint64
	SnapshotBytes     int64
	// SnapshotInterval is how often SnapshotThreshold is looked at.
	SnapshotInterval time.Duration
	// TrailingLogs, TrailingBytes: so many of the newest entries are kept over a snapshot, and about so many
	// bytes of them, whichever is less, so that a follower that was away for a moment needs no snapshot.
	TrailingLogs  uint64
	TrailingBytes int64
}

// Machine is the state that committed entries change. A single goroutine of raft's calls the
// methods.
type Machine interface {
	// Apply applies an entry. An error ends the node, as the state now differs from the other
	// nodes' state.
	Apply(Entry) error
	// Reach is called when every entry up to index is applied.
	Reach(index uint64)
	// Capture returns the present state. Another goroutine writes the state, while entries are
	// applied.
	Capture() io.WriterTo
	// Restore replaces the state by a snapshot's, which ends at index (0: not known).
	Restore(snapshot io.Reader, index uint64) error
}

// Entry is a committed entry of the log.
type Entry struct {
	Index, Term uint64
	Data        []byte
	Flags       []byte // as given to [Node.Propose]
}

// Event is something that an operator may want to know.
type Event interface{ Event() }

// SnapshotTaken: the state was captured into a snapshot of Bytes.
type SnapshotTaken struct {
	Bytes int64
	Took  time.Duration
	Err   error
}

// SnapshotDamaged: this leader could not read the newest snapshot, which a member needs. Another is taken. That is told
// once a minute as long as it is so.
type SnapshotDamaged struct{ Err error }

// FollowerStalled: this leader finds that the log of the follower has stood still at LogIndex
// since Since, although entries behind LogIndex are committed. LogIndex is 0 if the follower has
// not agreed with this leader yet.
type FollowerStalled struct {
	ID, Name            string
	LogIndex, Committed uint64
	Since               time.Time
}

// FollowerMoves: a follower that FollowerStalled named makes progress again. After is how long the
// follower's log stood still. A leadership that ends before tells nothing: each leader begins anew.
type FollowerMoves struct {
	ID, Name string
	LogIndex uint64
	After    time.Duration
}

// FarApart: a round trip from this leader to a majority takes more than a quarter of the heartbeat timeout, which is
// too short then. That is told once a leadership, and again after the round trip was shorter.
type FarApart struct{ RoundTrip, HeartbeatTimeout time.Duration }

// LogShortened: the member's log ends at LogIndex, although the member had acknowledged to this leader all up to
// Acknowledged. That is told once for each time.
type LogShortened struct {
	ID, Name               string
	LogIndex, Acknowledged uint64
}

// Event implements [Event].
func (SnapshotTaken) Event() {}

// Event implements [Event].
func (FollowerStalled) Event() {}

// Event implements [Event].
func (FollowerMoves) Event() {}

// Event implements [Event].
func (FarApart) Event() {}

// Event implements [Event].
func (LogShortened) Event() {}

// Event implements [Event].
func (SnapshotDamaged) Event() {}

// ErrQuarantined refuses what a node could only do with its own state, which differs from the other members'.
var ErrQuarantined = errors.New("this node's state differs from the other members'")
