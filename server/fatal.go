package server

import (
	"fmt"
	"time"

	"github.com/holdfast/holdfast/server/store"
)

// A node ends by itself for one of five reasons. The packages that find one tell it and decide nothing; here it is
// decided that each ends the node.
//
//   - A call to the disk hangs, or fails, or the data folder is gone: the store tells (storeHooks). A failed snapshot
//     is none of these, as another is taken later.
//   - An entry or a term that raft has counted as stored is not on the disk: raftnode tells by way of replica.Failed,
//     and holds back what raft could conclude (raftnode/parallel_log.go, raftnode/stable.go).
//   - An entry cannot be applied: raftnode tells by way of replica.Failed.
//   - A leader would replace entries that are committed: likewise (raftnode/parallel_log.go).
//   - Another member, or the log, knows a later incarnation of the node: package peer tells the registry of
//     incarnations, and the replica by way of replica.Failed.
//
// The replica stops after replica.Failed without being told. Run then abandons the rest.

// fail ends the process by way of Run; only the first error counts.
func (s *Server) fail(err error) {
	select {
	case s.fatal <- err:
	default:
	}
}

// storeHooks end the node when its disk hangs or fails. Otherwise a leader that cannot write
// would keep its leadership, and no client could lock (hashicorp/raft#503).
func (s *Server) storeHooks(f *faults) store.Hooks {
	return store.Hooks{
		DiskStallLimit: s.config.DiskStallLimit,
		OnStall: func(op store.Op, elapsed time.Duration) {
			s.fail(fmt.Errorf("disk hangs: %s has not returned for %v: ending, so that another node can lead", op,
				elapsed.Round(time.Millisecond)))
		},
		OnFault: func(op store.Op, err error) {
			s.fail(fmt.Errorf("disk failed: %s: %w", op, err))
		},
		OnSync: s.onSync,
		Faults: f.disk(),
	}
}
