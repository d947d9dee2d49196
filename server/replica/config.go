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

// Config is what a member of the cluster needs from the owner.
type Config struct {
	// ID is this node's: raft's server ID, and the name of the node's sessions. The ID never changes, and says the name.
	ID string
	// ClientAddr is the host:port that clients reach this node by. Other nodes
	// learn it from this node.
	ClientAddr string
	// SentinelAddr is the same for clients that speak to a Sentinel; empty: the node is none.
	SentinelAddr string
	// Release is what this node runs, as others are told.
	Release string
	// HoldVersion is the newest version that the cluster goes over to while this node is a member; 0: any.
	HoldVersion byte
	// FoundingVersion is the version with which the cluster that Bootstrap founds begins; 0: the oldest. All first members
	// must be able to use it.
	FoundingVersion byte
	// Bootstrap are the first members of a cluster, this node among them, for a node with empty stores. All of them
	// must be given the same. Without them an empty node waits until a leader adds it.
	Bootstrap []members.Member

	Stores Stores
	Peers  Peers
	Clock  Clock // nil: the system's
	// Machine is the state machine, without a state; nil: one of [fsm.New].
	Machine fsm.Machine
	Timing
	SnapshotPolicy
	Limits Limits
	// LockClasses are the patterns by which locks are counted: see [fsm.Machine.ClassifyLocks].
	LockClasses []string
	// EntryLimits are the cluster's while this node leads.
	EntryLimits protocol.EntryLimits

	// Secret makes what no client can guess, for the ids of sessions; nil: they are 1, 2, 3 and so on.
	Secret func() string

	// Quarantined: the node's state differed from the other members' before it ended. See [Replica.Quarantine].
	Quarantined bool
	// OnCapture, when not nil, gets the state behind each entry that asks for it: equal ones on all members. It must be
	// quick, and not call the replica.
	OnCapture func(index uint64, captured fsm.Snapshot)

	Logger     *slog.Logger // nil: none
	RaftLogger hclog.Logger // nil: none
	OnEvent    func(Event)  // nil: no listener; must be quick, and safe for many goroutines
	// OnEntry, when not nil, is told how long an entry of this node as leader took, from the proposal until it
	// was applied. It must be quick.
	OnEntry func(took time.Duration)
	// OnStateEvents is told what an entry did, before the clients of the entry's batches are answered;
	// nil: no listener. See [Replica.Listen]. It must be quick, and not call the replica. The slice is
	// good during the call.
	OnStateEvents func([]event.Event)
	// Audit, when not nil, gets what happened to locks in each entry, with the entry's index, also of entries that Open
	// applies again. It must be quick, and not call the replica. The slice is good during the call.
	Audit func(index uint64, changes []event.LockChange)
	// Report answers a question of any node about this node's clients; nil: this node has none. It is asked whatever the
	// node's state.
	Report func(question string) protocol.Value
	// OnConfiguration, when not nil, is called after the members, their addresses or their votes changed, or the
	// change was found committed. It must be quick: raft waits. See [Replica.Configuration].
	OnConfiguration func()
	// OnRemoved, when not nil, is called when this node finds that it is a member no more. It must be quick.
	OnRemoved func()
	// RunsReads, if not nil, says that the reads in this node's batch with that number must be run although
	// no client waits for them. It must be quick, and not call the replica.
	RunsReads func(number uint64) bool
}

// Stores are where the node keeps what must survive a restart.
type Stores struct {
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore
	// Lineage ends with the incarnation of this start, which is on disk before Open is called.
	Lineage incarnation.Lineage
}

// Peers are the streams of connections to other nodes, which are dialed by ID. The replica closes
// them, which must end all connections that came from them.
type Peers struct {
	Raft raft.StreamLayer
	// Append carries the entries of the log, and the questions which node leads.
	Append wire.Stream
	// Forward carries clients' requests to the leader. When a connection has a method
	// PeerName() string, only the node of that ID may forward over it.
	Forward wire.Stream
}

// Timing holds what is measured in time. Zero fields get the defaults.
type Timing struct {
	raftnode.Timing
	// CommandTimeout is how long a command may take before the client is told that the outcome is
	// uncertain. A batch that the state machine is running does not time out.
	CommandTimeout time.Duration
	// RefusalDelay is how long after a useful entry polls for a held lock wait for the next useful entry;
	// a timer may add a little. Negative: not at all.
	RefusalDelay time.Duration
	// AbsentAfter is how long the leader may not hear of a node before clients that wait on that node leave
	// the queues.
	AbsentAfter time.Duration
	// ClockStep caps what cluster time advances at once. Zero: ElectionTimeout.
	ClockStep time.Duration
}

// Limits bound what the node holds for clients. Zero fields get the defaults.
type Limits struct {
	// EntryBytes is where gathering into one log entry stops. A bigger batch goes alone.
	EntryBytes int
	// BatchBytes is the largest batch that is taken.
	BatchBytes int
	// PendingBatches and PendingBytes bound what waits on this node at once.
	PendingBatches int
	PendingBytes   int
	// ReplyBytes bounds the replies to a forwarded batch.
	ReplyBytes int
}

// SnapshotPolicy says when the log is cut. Zero fields get the defaults.
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

// TimeoutsFor returns the timeouts that carry a round trip: the one for heartbeats and elections, and that of commands.
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

// snapshotInterval is how often a threshold is looked at: every 30 s for the default or more, and for a lower one more
// often in proportion, but not more than twice a second.
func snapshotInterval(threshold uint64) time.Duration {
	const half, longest = time.Second / 2, 30 * time.Second
	return max(half, longest*time.Duration(min(threshold, DefaultSnapshotThreshold))/DefaultSnapshotThreshold)
}

// withDefaults fills what is zero.
func (c Config) withDefaults() Config {
	orDefault(&c.HeartbeatTimeout, DefaultHeartbeatTimeout)
	orDefault(&c.ElectionTimeout, max(DefaultElectionTimeout, c.HeartbeatTimeout))
	orDefault(&c.LeaseTimeout, c.HeartbeatTimeout) // a shorter one ends between two heartbeats of members far away
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

// auditing are the events that are told whoever listens.
func (c *Config) auditing() event.Interest {
	if c.Audit == nil {
		return 0
	}
	return event.InLocks
}

// validate reports all that is wrong with c.
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
