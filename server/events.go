package server

import (
	"fmt"
	"time"

	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/store"
)

// onEvent writes each event of the replica to the log. After replica.Failed the node ends.
func (s *Server) onEvent(event replica.Event) {
	switch e := event.(type) {
	case replica.LeadershipGained:
		s.logger.Info("leadership gained", "term", e.Term, "took", e.Took)
	case replica.LeadershipLost:
		s.logger.Warn("leadership lost", "term", e.Term)
	case replica.LeaderChanged:
		s.logger.Info("leader changed", "leader", e.Leader, "term", e.Term)
	case replica.LinkUp:
		s.logger.Debug("link to leader up", "leader", e.Leader)
	case replica.LinkDown:
		s.logger.Info("link to leader down", "leader", e.Leader, "error", e.Err)
	case replica.ProposalStalled:
		s.logger.Warn("proposal stalled", "age", e.Age)
	case replica.FollowerStalled:
		s.logger.Warn("follower makes no progress", "follower", e.Name, "log_index", e.LogIndex, "commit_index", e.Committed, "since", e.Since)
	case replica.FollowerMoves:
		s.logger.Info("follower makes progress again", "follower", e.Name, "log_index", e.LogIndex, "after", e.After)
	case replica.SnapshotTaken:
		if e.Err != nil {
			s.logger.Error("snapshot failed", "error", e.Err)
			return
		}
		s.logger.Info("snapshot taken", "bytes", e.Bytes, "took", e.Took)
	case replica.Restored:
		s.logger.Info("state restored from snapshot", "took", e.Took)
	case replica.Failed:
		s.fail(fmt.Errorf("state can no longer follow the log: %w", e.Err))
	}
}

// storeHooks end the node when its disk hangs or fails. Otherwise a leader that cannot write
// would keep its leadership, and no client could lock (hashicorp/raft#503).
func (s *Server) storeHooks(f *faults) store.Hooks {
	return store.Hooks{
		DiskStallLimit: s.config.DiskStallLimit,
		OnStall: func(op store.Op, elapsed time.Duration) {
			s.fail(fmt.Errorf("disk hangs: %s has not returned for %v: ending, so that another node can lead", op, elapsed.Round(time.Millisecond)))
		},
		OnFault: func(op store.Op, err error) {
			s.fail(fmt.Errorf("disk failed: %s: %w", op, err))
		},
		Faults: f.disk(),
	}
}
