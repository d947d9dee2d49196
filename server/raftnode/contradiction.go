package raftnode

import (
	"fmt"

	"github.com/hashicorp/raft"
)

// A leader has all that is committed. So a leader with another entry in a committed entry's place was elected by
// members that had forgotten what they acknowledged: an old copy of a data folder was put back, or a disk lost what it
// had synced. Raft would delete the entry here, and keep what the entry did in the state: this node would differ from
// the others for good. Such a node ends instead, before anything is deleted, and is the only one to notice.
//
// After a restart this node knows as committed what its snapshot has, and learns the rest from a leader. Entries behind
// the snapshot give way then, and are not applied. If the leader has another entry than the snapshot, the node ends
// again.

// contradicted ends the node, which is in that term, if the leader that sent req has another entry than this node at
// the end of this node's newest snapshot. Raft refuses a request of an older term without help.
func (l *parallelLog) contradicted(req *raft.AppendEntriesRequest, end *raft.SnapshotMeta, current uint64) error {
	term, has := req.PrevLogTerm, req.PrevLogEntry == end.Index
	for _, e := range req.Entries {
		if e.Index == end.Index {
			term, has = e.Term, true
		}
	}
	if !has || term == end.Term || req.Term < current {
		return nil
	}
	return l.end(fmt.Errorf("log entries up to %d are committed and in this node's snapshot, and %s", end.Index,
		lostMembers))
}
