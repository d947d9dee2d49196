package store

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/incarnation"
)

// Config configures [Open].
type Config struct {
	DataDir string
	// Name is the node's name. A folder of a node with another name is refused.
	Name   string
	Hooks  Hooks
	Logger *slog.Logger
	// Mends also opens a folder whose newest snapshot another member's state may replace, see [Store.Missing].
	Mends bool
	// recovers also opens a folder that is being recovered.
	recovers bool
}

// Hooks has the owner's callbacks about the disk.
type Hooks struct {
	// DiskStallLimit bounds the duration of a call. 0 means DefaultDiskStallLimit.
	DiskStallLimit time.Duration
	// OnStall is called once per Store, on its own goroutine, when a call takes longer than DiskStallLimit. The owner
	// should end the process.
	OnStall func(op Op, elapsed time.Duration)
	// OnFault is called once per Store, on its own goroutine, when a call on Log or Stable has failed, other than for a
	// missing entry, or when the folder was removed. The stores cannot be used until they are opened again, so the
	// owner should end the process.
	OnFault func(op Op, err error)
	// OnSync, if not nil, is called with the duration of each append to the log, including the sync. It must not block.
	OnSync func(took time.Duration)
	// OnSpace, if not nil, is called with the free bytes and the size of the folder's file system, if they are known:
	// each second, and each time a segment's bytes were appended to the log. It must not block.
	OnSpace func(free, total uint64)
	// Faults, if not nil, injects faults, for tests.
	Faults *Faults
}

// DefaultDiskStallLimit is longer than the stalls of healthy disks (a few seconds for a journal commit or a cloud
// volume), since ending all nodes for a stall of shared storage would be worse than waiting. It is short enough that a
// leader's dead disk costs seconds.
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
	opLook        Op = "look for data folder" // a call of the guard's own, not of raft
)

// Store is an open data folder.
type Store struct {
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore
	// Lineage ends with the incarnation of this Open, see package incarnation.
	Lineage incarnation.Lineage

	guard *guard
	owner *owner // nil for a store made by [New]
	close func() error
	// missing is nil if no snapshot is missing. align makes the log continue the newest snapshot.
	missing atomic.Pointer[Missing]
	align   func() error
}

// Hanging returns the age of the oldest append to the log, or write of a term or vote, that is in flight, or 0.
func (s *Store) Hanging() time.Duration { return s.guard.hanging(time.Now()) }

// Parts are the stores of a Store, on a disk or in memory.
type Parts struct {
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore
	Lineage   incarnation.Lineage
	// Close, if not nil, is called once by Store.Close.
	Close   func() error
	missing *Missing
}

// New aligns the log in p with the snapshots and returns p with a watchdog. Open calls New; tests call it with stores
// in memory.
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

// Close closes all files and unlocks the folder. Raft must have been shut down before. Errors of calls still in flight
// are no longer reported as faults.
func (s *Store) Close() error {
	if s.guard.closing.Swap(true) || s.close == nil {
		return nil
	}
	return s.close()
}
