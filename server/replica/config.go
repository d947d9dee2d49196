package replica

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer/wire"
	"github.com/holdfast/holdfast/server/raftnode"
)

// Config configures a replica.
type Config struct {
	// ID is this node's: raft's server ID, and the name of the node's sessions. The ID never changes, and contains the
	// name.
	ID string
	// ClientAddr is the host:port for clients. Other nodes learn it from this node.
	ClientAddr string
	// SentinelAddr is the host:port for clients of Sentinel, or empty if the node has no such port.
	SentinelAddr string
	// Release is the release of this node, for other nodes.
	Release string
	// HoldVersion is the newest version that the cluster may adopt while this node is a member, or 0 for any.
	HoldVersion byte
	// FoundingVersion is the first version of the cluster that Bootstrap founds, or 0 for the oldest. All first members
	// must be able to use it.
	FoundingVersion byte
	// Bootstrap has the first members of a cluster, including this node, if the stores are empty. All of them must have
	// the same value. Without Bootstrap a node with empty stores waits until a leader adds it.
	Bootstrap []members.Member

	Stores Stores
	Peers  Peers
	Clock  Clock // nil selects that of the system
	// Machine is the state machine, without a state. nil selects one of [fsm.New].
	Machine fsm.Machine
	Timing
	SnapshotPolicy
	Limits Limits
	// LockClasses has the patterns of lock classes: see [fsm.Machine.ClassifyLocks].
	LockClasses []string
	// EntryLimits apply while this node leads.
	EntryLimits protocol.EntryLimits

	// Secret returns a text that no client can guess, for the ids of sessions. If it is nil, the ids are 1, 2, 3 and so
	// on.
	Secret func() string

	// Quarantined is set if the node's state differed from that of other members when it last stopped: see
	// [Replica.Quarantine].
	Quarantined bool
	// OnCapture, if not nil, gets the state after each entry that asks for it. Members must then have equal states. It
	// must be quick, and must not call the replica.
	OnCapture func(index uint64, captured fsm.Snapshot)

	Logger     *slog.Logger // nil discards the lines
	RaftLogger hclog.Logger // nil discards the lines
	OnEvent    func(Event)  // may be nil; must be quick, and safe for concurrent use
	// OnEntry, if not nil, is called with the time from the proposal of an entry by this leader to its application. It
	// must be quick.
	OnEntry func(took time.Duration)
	// OnStateEvents, if not nil, gets the events of an entry before the clients of its batches get their replies: see
	// [Replica.Listen]. It must be quick, and must not call the replica. The slice is valid during the call.
	OnStateEvents func([]event.Event)
	// Audit, if not nil, gets the changes of locks of each entry and the entry's index, even for entries that Open applies
	// again. It must be quick, and must not call the replica. The slice is valid during the call.
	Audit func(index uint64, changes []event.LockChange)
	// Report answers another node's question about this node's clients, in every state of the node. It is nil if this node
	// has none.
	Report func(question string) protocol.Value
	// OnConfiguration, if not nil, is called after a change of the members, their addresses or their votes, and after the
	// change was committed. It must be quick, since raft waits. See [Replica.Configuration].
	OnConfiguration func()
	// OnRemoved, if not nil, is called when this node learns that it is no longer a member. It must be quick.
	OnRemoved func()
	// RunsReads, if not nil, reports whether the reads in this node's batch with a number must run even if no client waits
	// for them. It must be quick, and must not call the replica.
	RunsReads func(number uint64) bool
}

// Stores has the stores of what must survive a restart.
type Stores struct {
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore
	// Lineage ends with the incarnation of this start, which must be on disk before Open is called.
	Lineage incarnation.Lineage
}

// Peers has the streams of connections to other nodes, which are dialed by ID. The replica closes them, which must end
// all their connections.
type Peers struct {
	Raft raft.StreamLayer
	// Append carries log entries, and the questions which node leads.
	Append wire.Stream
	// Forward carries batches to the leader. If a connection has a method PeerName() string, it may forward only for the
	// node of that ID.
	Forward wire.Stream
}

// Timing has durations. A zero selects the default.
type Timing struct {
	raftnode.Timing
	// CommandTimeout bounds the time of a command. The client then gets the error that the outcome is uncertain. A batch
	// that the state machine is running does not time out.
	CommandTimeout time.Duration
	// RefusalDelay is the time after a useful entry for which polls for a held lock wait for the next useful entry; a
	// timer may add a little. A negative value disables the delay.
	RefusalDelay time.Duration
	// AbsentAfter is the time of silence after which the leader removes the waiters of a node from their queues.
	AbsentAfter time.Duration
	// ClockStep bounds one step of cluster time. 0 selects ElectionTimeout.
	ClockStep time.Duration
}

// Limits bounds what the node has for clients. A zero selects the default.
type Limits struct {
	// EntryBytes is the size from which no more batches are added to an entry. A larger batch is alone in its entry.
	EntryBytes int
	// BatchBytes bounds a batch.
	BatchBytes int
	// PendingBatches and PendingBytes bound the batches that wait on this node.
	PendingBatches int
	PendingBytes   int
	// ReplyBytes bounds the replies to a forwarded batch.
	ReplyBytes int
}

// SnapshotPolicy decides when the log is truncated. A zero selects the default.
type SnapshotPolicy = raftnode.SnapshotPolicy

// The defaults; DESIGN.md has the reasons.
const (
	DefaultHeartbeatTimeout = 400 * time.Millisecond
	DefaultElectionTimeout  = 400 * time.Millisecond
	DefaultCommitTimeout    = 100 * time.Millisecond
	DefaultRefusalDelay     = time.Millisecond
	DefaultCommandTimeout   = 1750 * time.Millisecond
	DefaultAbsentAfter      = 10 * time.Second

	DefaultEntryBytes     = 1 << 20
	DefaultBatchBytes     = 32 << 20
	DefaultPendingBatches = 1 << 16
	DefaultPendingBytes   = 256 << 20
	DefaultReplyBytes     = 64 << 20

	DefaultSnapshotThreshold = 1 << 16
	DefaultSnapshotBytes     = 256 << 20
	DefaultTrailingLogs      = 1 << 14
	DefaultTrailingBytes     = 256 << 20
)

// TimeoutsFor returns the least timeouts for a round trip: that of heartbeats and elections, and that of commands.
func TimeoutsFor(roundTrip time.Duration) (heartbeat, command time.Duration) {
	const step = 100 * time.Millisecond
	heartbeat = max(DefaultHeartbeatTimeout, (4*roundTrip+step-1)/step*step)
	return heartbeat, heartbeat * DefaultCommandTimeout / DefaultHeartbeatTimeout
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// snapshotInterval returns the interval of checks of a threshold: 30 s for the default or more, and for a lower one
// proportionally less, but at least half a second.
func snapshotInterval(threshold uint64) time.Duration {
	const half, longest = time.Second / 2, 30 * time.Second
	return max(half, longest*time.Duration(min(threshold, DefaultSnapshotThreshold))/DefaultSnapshotThreshold)
}

// withDefaults returns c with defaults in place of zeros.
func (c Config) withDefaults() Config {
	orDefault(&c.HeartbeatTimeout, DefaultHeartbeatTimeout)
	orDefault(&c.ElectionTimeout, max(DefaultElectionTimeout, c.HeartbeatTimeout))
	orDefault(&c.LeaseTimeout, c.HeartbeatTimeout) // a shorter one would end between two heartbeats of distant members
	orDefault(&c.CommitTimeout, DefaultCommitTimeout)
	orDefault(&c.RefusalDelay, DefaultRefusalDelay)
	orDefault(&c.CommandTimeout, DefaultCommandTimeout)
	orDefault(&c.AbsentAfter, DefaultAbsentAfter)
	orDefault(&c.ClockStep, c.ElectionTimeout)
	orDefault(&c.Limits.EntryBytes, DefaultEntryBytes)
	orDefault(&c.Limits.BatchBytes, DefaultBatchBytes)
	orDefault(&c.Limits.PendingBatches, DefaultPendingBatches)
	orDefault(&c.Limits.PendingBytes, DefaultPendingBytes)
	orDefault(&c.Limits.ReplyBytes, DefaultReplyBytes)
	orDefault(&c.SnapshotThreshold, DefaultSnapshotThreshold)
	orDefault(&c.SnapshotBytes, DefaultSnapshotBytes)
	orDefault(&c.SnapshotInterval, snapshotInterval(c.SnapshotThreshold))
	orDefault(&c.TrailingLogs, DefaultTrailingLogs)
	orDefault(&c.TrailingBytes, DefaultTrailingBytes)
	if c.Clock == nil {
		c.Clock = SystemClock()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.RaftLogger == nil {
		c.RaftLogger = hclog.NewNullLogger()
	}
	if c.OnEvent == nil {
		c.OnEvent = func(Event) {}
	}
	if c.RunsReads == nil {
		c.RunsReads = func(uint64) bool { return false }
	}
	if c.Report == nil {
		c.Report = func(string) protocol.Value { return protocol.Null }
	}
	if c.OnConfiguration == nil {
		c.OnConfiguration = func() {}
	}
	if c.OnRemoved == nil {
		c.OnRemoved = func() {}
	}
	if c.OnStateEvents == nil {
		c.OnStateEvents = func([]event.Event) {}
	}
	return c
}

// auditing returns the events that are emitted even without a listener.
func (c *Config) auditing() event.Interest {
	if c.Audit == nil {
		return 0
	}
	return event.InLocks
}

// validate returns all errors of c.
func (c *Config) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.ID != "", "ID is empty")
	first := members.NewConfiguration(0, c.Bootstrap...)
	check(len(c.Bootstrap) == 0 || first.IsVoter(c.ID), "the first members do not have this node, %q, as a voter", c.ID)
	for _, m := range c.Bootstrap {
		check(m.ID != "" && m.Addr != "", "the first members have one without ID or address: %q=%q", m.ID, m.Addr)
	}
	check(c.HoldVersion == 0 || c.HoldVersion >= protocol.OldestEntryVersion && c.HoldVersion <= protocol.EntryVersion,
		"this release knows no cluster of version %d, but of %d to %d", c.HoldVersion, protocol.OldestEntryVersion,
		protocol.EntryVersion)
	check(c.FoundingVersion <= protocol.EntryVersion, "%v", protocol.NewerError("the cluster has", c.FoundingVersion))
	check(c.Stores.Log != nil && c.Stores.Stable != nil && c.Stores.Snapshots != nil, "a store is missing")
	check(c.Stores.Lineage.Current() > 0, "there is no incarnation")
	check(c.Peers.Raft != nil && c.Peers.Append != nil && c.Peers.Forward != nil,
		"a stream of peer connections is missing")
	check(c.LeaseTimeout <= c.HeartbeatTimeout, "lease %v is above heartbeat %v", c.LeaseTimeout, c.HeartbeatTimeout)
	check(c.ElectionTimeout >= c.HeartbeatTimeout, "election %v is below heartbeat %v", c.ElectionTimeout,
		c.HeartbeatTimeout)
	return errors.Join(errs...)
}
