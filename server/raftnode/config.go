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

// Config has a node's dependencies and settings. All fields must be set.
type Config struct {
	// ID is the node's permanent ID. A node with a new data folder has another ID.
	ID string
	// Bootstrap has the first members of a cluster, this node among them, to write to an empty store. If it is empty,
	// an empty store stays empty until a leader adds this node.
	Bootstrap []members.Member

	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore

	// Append carries AppendEntries, and Raft carries raft's other requests. Both dial a node by its ID.
	Raft   raft.StreamLayer
	Append wire.Stream
	// Dial connects to another node's listener for proposals, see [Node.AnswerProposal].
	Dial func(ctx context.Context, id string) (net.Conn, error)

	Timing
	SnapshotPolicy

	// Quarantined starts the node in quarantine, see [Node.Quarantine].
	Quarantined bool

	Logger     *slog.Logger
	RaftLogger hclog.Logger

	// Machine receives the committed entries.
	Machine Machine
	// OnChange is called after raft's role, term or leader has changed. It must not block.
	OnChange func()
	// OnConfiguration is called after the members, their addresses or their votes have changed, and again once the
	// change is known to be committed. It must not block, since raft waits for it.
	OnConfiguration func()
	// OnRemoved is called when this node learns that it was removed. It must not block.
	OnRemoved func()
	// OnEvent receives events for the operator. It must not block, and is called concurrently.
	OnEvent func(Event)
	// Fail is called when the node cannot continue. It must not block, and is called concurrently.
	Fail func(error)
}

// Timing has raft's timeouts. Raft waits for one to two times the value, except for LeaseTimeout.
type Timing struct {
	// HeartbeatTimeout is the silence of the leader after which a follower starts an election.
	HeartbeatTimeout time.Duration
	// ElectionTimeout is the time after which a candidate starts another election.
	ElectionTimeout time.Duration
	// LeaseTimeout is the silence of a majority after which a leader steps down.
	LeaseTimeout time.Duration
	// CommitTimeout is the time after which followers learn of the last commit if nothing is proposed.
	CommitTimeout time.Duration
}

// SnapshotPolicy decides when a snapshot is taken and how much of the log it leaves.
type SnapshotPolicy struct {
	// SnapshotThreshold and SnapshotBytes are the entries, and their bytes, after which a snapshot is taken.
	SnapshotThreshold uint64
	SnapshotBytes     int64
	// SnapshotInterval is the interval at which SnapshotThreshold is checked.
	SnapshotInterval time.Duration
	// TrailingLogs and (approximately) TrailingBytes bound the newest entries that are kept behind a snapshot, so that
	// a follower that was away for a moment needs no snapshot.
	TrailingLogs  uint64
	TrailingBytes int64
}

// Machine is the replicated state. A single goroutine of raft calls the methods.
type Machine interface {
	// Apply applies an entry. An error ends the node, since its state then differs from the other nodes'.
	Apply(Entry) error
	// Reach is called after every entry up to index has been applied.
	Reach(index uint64)
	// Capture returns a snapshot of the state. Another goroutine writes it while further entries are applied.
	Capture() io.WriterTo
	// Restore replaces the state by a snapshot's. index is that of the snapshot's last entry, 0 if unknown.
	Restore(snapshot io.Reader, index uint64) error
}

// Entry is a committed entry of the log.
type Entry struct {
	Index, Term uint64
	Data        []byte
	Flags       []byte // as given to [Node.Propose]
}

// Event is an event for the operator.
type Event interface{ Event() }

// SnapshotTaken reports that a snapshot of Bytes was written, or failed with Err.
type SnapshotTaken struct {
	Bytes int64
	Took  time.Duration
	Err   error
}

// SnapshotDamaged reports that this leader could not read its newest snapshot, which a member needs, and takes another.
// It is repeated once a minute.
type SnapshotDamaged struct{ Err error }

// FollowerStalled reports that a follower's log has ended at LogIndex since Since, although later entries are
// committed. LogIndex is 0 if the follower has not agreed with this leader yet.
type FollowerStalled struct {
	ID, Name            string
	LogIndex, Committed uint64
	Since               time.Time
}

// FollowerMoves reports that a stalled follower's log grows again, After being the time for which it did not. It is not
// reported if the leadership ends first.
type FollowerMoves struct {
	ID, Name string
	LogIndex uint64
	After    time.Duration
}

// FarApart reports that the round trip from this leader to a majority exceeds a quarter of the heartbeat timeout, which
// is then too short. It is reported once per leadership, and again after the round trip was shorter.
type FarApart struct{ RoundTrip, HeartbeatTimeout time.Duration }

// LogShortened reports, once each time, that a member's log ends at LogIndex although the member had acknowledged all
// entries up to Acknowledged to this leader.
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

// ErrQuarantined is returned for operations that need this node's state, which differs from the other members'.
var ErrQuarantined = errors.New("this node's state differs from the other members'")
