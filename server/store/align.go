package store

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// position identifies an entry.
type position struct{ index, term uint64 }

// completed has the index at which the newest completed snapshot ends, 0 if none was completed.
type completed struct{ end atomic.Uint64 }

// reach records the end of a completed snapshot, or returns false if a later snapshot was completed before.
func (c *completed) reach(index uint64) bool {
	for {
		old := c.end.Load()
		if old > index {
			return false
		}
		if c.end.CompareAndSwap(old, index) {
			return true
		}
	}
}

// spare returns the last of the entries lo to hi that may be deleted.
//
// When raft installs a snapshot, it empties the log of a store without gaps. This node may have acknowledged entries
// behind the snapshot's end, which the leader still counts, so they are kept. Raft's rule (paper, figure 13, step 6)
// keeps them only if the log has the snapshot's last entry. If it has another one, raft detects the conflict when it
// compares the kept entries with the leader's.
//
// A deletion that begins behind the snapshot's end is allowed. Each deletion of a conflicting tail does, since the
// entries of a snapshot are committed.
func (c *completed) spare(lo, hi uint64) uint64 {
	if end := c.end.Load(); lo <= end {
		return min(hi, end)
	}
	return hi
}

// tooOld reports whether a snapshot that ends at index is late, because a later one exists. Raft takes its own at
// increasing indexes, and a leader sends one only to a follower that is behind.
func tooOld(snapshots raft.SnapshotStore, index uint64) (bool, error) {
	list, err := snapshots.List()
	return len(list) > 0 && list[0].Index > index, err
}

func overtaken(verb string, index uint64) error {
	return fmt.Errorf("%s snapshot: one of a later index than %d is there", verb, index)
}

// bounds returns the indexes of a log's first and last entry.
func bounds(log raft.LogStore) (first, last uint64, err error) {
	first, errFirst := log.FirstIndex()
	last, errLast := log.LastIndex()
	return first, last, cmp.Or(errFirst, errLast)
}

func hasPosition(log raft.LogStore, p position) (bool, error) {
	var entry raft.Log
	err := log.GetLog(p.index, &entry)
	if errors.Is(err, raft.ErrLogNotFound) {
		return false, nil
	}
	return entry.Term == p.term, err
}

// align empties a log that does not continue the newest snapshot. A crash after the installation of a snapshot and
// before the deletion of the replaced entries leaves such a log: it ends before the snapshot, so that the next entry
// would leave a gap, or it has another, uncommitted entry at the snapshot's end.
func align(log raft.LogStore, snapshots raft.SnapshotStore) error {
	list, err := snapshots.List()
	if err != nil {
		return fmt.Errorf("bring log and snapshots into line: %w", err)
	}
	first, last, err := bounds(log)
	if err != nil {
		return fmt.Errorf("bring log and snapshots into line: %w", err)
	}
	if len(list) == 0 || last == 0 {
		return nil
	}
	end := position{index: list[0].Index, term: list[0].Term}
	if first > end.index && last > end.index {
		return nil // the log continues the snapshot, and entry end.index was deleted
	}
	has, err := hasPosition(log, end)
	if err == nil && !has {
		err = log.DeleteRange(first, last)
	}
	if err != nil {
		return fmt.Errorf("bring log and snapshots into line: %w", err)
	}
	return nil
}

// Device is the system below a data folder: the operating system, or the memory of a test (package storetest).
type Device struct {
	FS vfs.FS
	// Lock locks a folder against other processes. Closing the result unlocks it.
	Lock func(dir string) (io.Closer, error)
	// CreateStable creates a store of terms and votes, and OpenStable opens it. They do not use FS, as bbolt needs a
	// real file.
	CreateStable func(path string) error
	OpenStable   func(path string) (StableStore, error)
	// SegmentSize is the size of the log's segments in bytes, by default wal.DefaultSegmentSize.
	SegmentSize int64
	// Random returns the random numbers of incarnations, by default from crypto/rand.
	Random func() uint32
}

// StableStore is a raft.StableStore of a [Device].
type StableStore interface {
	raft.StableStore
	io.Closer
}

// system is the operating system's device.
func system() Device { return deviceOn(vfs.OS{}) }

// deviceOn is a device of the operating system's files.
func deviceOn(fs vfs.FS) Device {
	return Device{
		FS:           fs,
		Lock:         func(dir string) (io.Closer, error) { return lockDir(dir) },
		CreateStable: func(path string) error { return createStable(fs, path) },
		OpenStable:   func(path string) (StableStore, error) { return openStable(fs, path) },
	}
}
