package server

import (
	"fmt"
	"time"

	"github.com/holdfast/holdfast/server/store"
)

// A node ends itself for one of five reasons. The packages that detect them only report them, and this package ends the
// node:
//
//   - A call to the disk hangs or fails, or the data folder is missing. The store reports it (storeHooks). A failed
//     snapshot is not a reason, as another is taken later.
//   - An entry or a term that raft has counted as stored is not on the disk. raftnode reports replica.Failed, and
//     withholds the acknowledgements that depend on it (raftnode/parallel_log.go, raftnode/stable.go).
//   - An entry cannot be applied. raftnode reports replica.Failed.
//   - A leader would replace committed entries. raftnode reports replica.Failed (raftnode/parallel_log.go).
//   - Another member, or the log, has a later incarnation of the node. Package peer reports it to the registry of
//     incarnations, and the replica reports replica.Failed.
//
// The replica stops by itself after replica.Failed. Run then abandons the rest.

// fail makes Run return an error and the process end. Later errors are ignored.
func (s *Server) fail(err error) {
	select {
	case s.fatal <- err:
	default:
	}
}

// storeHooks returns hooks that end the node if its disk hangs or fails. Otherwise a leader that cannot write would
// keep its leadership (hashicorp/raft#503).
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
		OnSync:  s.onSync,
		OnSpace: s.onSpace,
		Faults:  f.disk(),
	}
}
