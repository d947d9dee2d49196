package raftnode

import (
	"fmt"

	"github.com/hashicorp/raft"
)

// Raft loads entries of up to 32 MiB long before use: 32 for a request to a follower, and thousands ahead of the state
// machine. Together they could exceed the memory of a node's container. So raft reads large commands, and from a few
// KiB on those far ahead of the state machine, without their data, which raft never inspects. The data is loaded when
// the entry is sent (cutAppend) or applied (applier.ApplyBatch).

// isStripped reports whether log is an entry whose data is replaced by the placeholder.
func (l *parallelLog) isStripped(log *raft.Log) bool {
	return cap(log.Data) > 0 && &log.Data[:1][0] == &l.placeholder[:1][0]
}

// sizeToSend returns the approximate size of an entry in a request, or a lower bound if its data is not loaded.
func (l *parallelLog) sizeToSend(log *raft.Log) int64 {
	if l.isStripped(log) {
		return strippedOver
	}
	return sizeOfEntry(log)
}

// withData returns the entry with its data, which it loads for a stripped entry.
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
