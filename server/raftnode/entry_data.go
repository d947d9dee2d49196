package raftnode

import (
	"fmt"

	"github.com/hashicorp/raft"
)

// Raft loads entries long before use: 32 for a request to a follower, and thousands ahead of the
// state machine, of up to 32 MiB each. So raft gets large commands from the disk without their
// data, and those that are far ahead of the state machine from a few KiB on: a node that starts in a
// container that its state fills would not live through the replay. The data is loaded at the time of
// use: when the entry is sent (cutAppend) or applied (applier.ApplyBatch). Raft looks at no command's
// data.

// isStripped reports whether log is an entry whose data is replaced by the placeholder.
func (l *parallelLog) isStripped(log *raft.Log) bool {
	return cap(log.Data) > 0 && &log.Data[:1][0] == &l.placeholder[:1][0]
}

// sizeToSend is about the size of an entry in a request, or the least that it may be if its data is not loaded.
func (l *parallelLog) sizeToSend(log *raft.Log) int64 {
	if l.isStripped(log) {
		return strippedOver
	}
	return sizeOfEntry(log)
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
