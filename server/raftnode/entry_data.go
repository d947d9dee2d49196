package raftnode

import (
	"fmt"

	"github.com/hashicorp/raft"
)

// Raft loads entries long before use: 32 for a request to a follower, and thousands ahead of the
// state machine, of up to 32 MiB each. So raft gets large commands from the disk without their
// data. The data is loaded at the time of use: when the entry is sent (cutAppend) or applied
// (applier.ApplyBatch). Raft looks at no command's data.

const (
	// Raft gets commands of more than strippedOver bytes without their data. A request of smaller commands is sent in
	// one piece.
	strippedOver = appendGather / maxAppend
	// recentBytes bounds the recent entries in memory, but for the newest entry and entries that
	// are not on the disk.
	recentBytes = 64 << 20
)

// isStripped reports whether log is an entry whose data is replaced by the placeholder.
func (l *parallelLog) isStripped(log *raft.Log) bool {
	return len(log.Data) == 0 && cap(log.Data) > 0 && &log.Data[:1][0] == &l.placeholder[:1][0]
}

// withData returns the entry with its data, which is loaded for a stripped entry.
func (l *parallelLog) withData(log *raft.Log) (*raft.Log, error) {
	if !l.isStripped(log) {
		return log, nil
	}
	read := new(raft.Log)
	if err := l.store.GetLog(log.Index, read); err != nil {
		return nil, fmt.Errorf("load entry %d: %w", log.Index, err)
	}
	if read.Term != log.Term {
		return nil, fmt.Errorf("load entry %d of term %d: another, of term %d, has taken its place", log.Index, log.Term,
			read.Term)
	}
	return read, nil
}

// forget drops recent entries beyond the bound, from the oldest on. Entries from index on stay.
// Requires l.mu.
func (l *parallelLog) forget(last, index uint64) {
	size := int64(0)
	for i := last; i+recentLogs > last; i-- { // indices that wrap around find nothing
		at := &l.recent[i%recentLogs]
		switch log := *at; {
		case log == nil:
		case log.Index != i:
			*at = nil
		default:
			if size += sizeOfEntry(log); size > recentBytes && i < index {
				*at = nil
			}
		}
	}
}
