package store

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/incarnation"
)

// Config says which folder, whose, and what to do when the disk misbehaves.
type Config struct {
	DataDir string
	// Name is the node's. A folder that belongs to a node of another name is refused.
	Name   string
	Hooks  Hooks
	Logger *slog.Logger
	// Mends: also a folder whose newest snapshot another member's state may stand for: see [Store.Missing].
	Mends bool
	// recovers: also a folder that is being recovered.
	recovers bool
}

// Hooks tell the owner what the disk does.
type Hooks struct {
	// DiskStallLimit is how long a call may take. 0: DefaultDiskStallLimit.
	DiskStallLimit time.Duration
	// OnStall is called once per Store, on a goroutine of its own, when a call has been running longer
	// than DiskStallLimit. The owner should end the process.
	OnStall func(op Op, elapsed time.Duration)
	// OnFault is called once per Store, on a goroutine of its own, when a call on Log or Stable failed
	// for another reason than a missing entry, or the folder is not there any more. The disk cannot be trusted then, and
	// neither store recovers without being opened again: the owner should end the process.
	OnFault func(op Op, err error)
	// OnSync, when not nil, is told how long each append to the log took, from the write until the disk has
	// it. It must be quick.
	OnSync func(took time.Duration)
	// Faults, when not nil, may delay, hang or fail calls. For tests.
	Faults *Faults
}

// DefaultDiskStallLimit is longer than what healthy disks are known to stall for
// (a journal commit, a cloud volume's hiccup: up to a few seconds), since a hiccup
// of shared storage that ended all nodes at once would be worse than waiting; and
// short enough that a dead disk of a leader costs seconds.
const DefaultDiskStallLimit = 10 * time.Second

// Op names a call on a store.
type Op string

// The calls.
const (
	OpStoreLogs   Op = "store logs"
	OpGetLog      Op = "get log"
	OpDeleteRange Op = "delete log range"
	OpSet         Op = "set stable value"
	OpGet         Op = "get stable value"
	OpSnapshot    Op = "handle snapshot"
	opLook        Op = "look for data folder" // no raft call: the guard's own
)

// Store is what a node keeps on its disk.
type Store struct {
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore
	// Lineage ends with this Open's incarnation: see package incarnation.
	Lineage incarnation.Lineage

	guard *guard
	owner *owner // nil: the store is bare stores
	close func() error
	// missing is nil when nothing is. align brings log and snapshots into line.
	missing atomic.Pointer[Missing]
	align   func() error
}

// Hanging is how long the oldest append to the log, or write of a term or vote, has been under way; 0: none is.
func (s *Store) Hanging() time.Duration { return s.guard.hanging(time.Now()) }

// Parts are bare stores, from a disk or from memory.
type Parts struct {
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore
	Lineage   incarnation.Lineage
	// Close, when not nil, is called by Store.Close, once.
	Close   func() error
	missing *Missing
}

// New puts the watchdog around p, after log and snapshots were brought into line. Open
// calls New; tests call it with stores in memory.
func New(p Parts, h Hooks) (*Store, error) {
	if p.missing == nil {
		if err := align(p.Log, p.Snapshots); err != nil {
			return nil, err
		}
	}
	g := newGuard(h)
	done := &completed{}
	s := &Store{
		Log:       &guardedLog{guard: g, log: p.Log, completed: done},
		Stable:    &guardedStable{guard: g, stable: p.Stable},
		Snapshots: &guardedSnapshots{guard: g, snapshots: p.Snapshots, completed: done},
		Lineage:   p.Lineage,
		guard:     g,
		close:     p.Close,
		align:     func() error { return align(p.Log, p.Snapshots) },
	}
	s.missing.Store(p.missing)
	return s, nil
}

// Close closes all files and frees the folder. Raft must have been shut down
// before. Errors of calls that are still under way are no longer faults.
func (s *Store) Close() error {
	if s.guard.closing.Swap(true) || s.close == nil {
		return nil
	}
	return s.close()
}
