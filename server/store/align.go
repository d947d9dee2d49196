package store

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// position is a place in the log.
type position struct{ index, term uint64 }

// completed remembers the snapshot that was completed last.
type completed struct{ latest atomic.Pointer[position] }

// spare returns up to where entries lo to hi may be deleted.
//
// When raft installs a snapshot it empties the log of a store without gaps, whatever is
// in it. That is wrong when the snapshot comes late: a leader gave up waiting and sent
// another, the follower went on from that one, acknowledged entries, and then the first
// arrives, held up by a partition that has healed. Those entries would be gone from this node
// while it counts as having them. Raft's rule (paper, figure 13, step 6) is: if the log has
// the snapshot's last entry, what follows it stays. So here. All other deletions pass.
func (c *completed) spare(log raft.LogStore, lo, hi uint64) (uint64, error) {
	end := c.latest.Load()
	if end == nil {
		return hi, nil
	}
	first, err := log.FirstIndex()
	if err != nil {
		return 0, err
	}
	last, err := log.LastIndex()
	if err != nil || lo > first || hi < last {
		return hi, err
	}
	if first > end.index {
		return first - 1, nil // all of it follows
	}
	has, err := hasPosition(log, *end)
	if has {
		return end.index, err
	}
	return hi, err
}

// tooOld says whether a snapshot that ends at index can only be one that comes
// late. Raft takes its own at ever higher indexes, and a leader sends one only to
// a follower that is behind it.
func tooOld(snapshots raft.SnapshotStore, index uint64) (bool, error) {
	list, err := snapshots.List()
	return err == nil && len(list) > 0 && list[0].Index > index, err
}

func hasPosition(log raft.LogStore, p position) (bool, error) {
	var entry raft.Log
	err := log.GetLog(p.index, &entry)
	if errors.Is(err, raft.ErrLogNotFound) {
		return false, nil
	}
	return err == nil && entry.Term == p.term, err
}

// align empties a log that does not go on from the newest snapshot. A crash between the
// installation of a snapshot and the deletion of the entries that it replaces
// leaves one behind: it ends before the snapshot does, so that the next entry
// would leave a gap; or it has another entry at the snapshot's end, and was never
// committed from there on or earlier.
func align(log raft.LogStore, snapshots raft.SnapshotStore) error {
	list, err := snapshots.List()
	if err != nil {
		return fmt.Errorf("bring log and snapshots into line: %w", err)
	}
	first, err := log.FirstIndex()
	if err != nil {
		return fmt.Errorf("bring log and snapshots into line: %w", err)
	}
	last, err := log.LastIndex()
	if err != nil {
		return fmt.Errorf("bring log and snapshots into line: %w", err)
	}
	if len(list) == 0 || last == 0 {
		return nil
	}
	end := position{index: list[0].Index, term: list[0].Term}
	if first > end.index && last > end.index {
		return nil // it goes on from the snapshot: entry end.index itself was deleted
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
