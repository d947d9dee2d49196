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

// lostMembers is what the operator is told.
const lostMembers = "a leader would replace them, so members have lost entries that they had acknowledged " +
	"(an old copy of a data folder put back, or a disk that lost what it had synced); nothing was deleted: replace " +
	"those members, see MEMBERS.md"

// bounds is how far entries are committed, as this node knows, and where its newest snapshot ends. Raft takes no note
// in its commit index of what a snapshot of a leader has committed.
func (n *Node) bounds() (committed, snapshot uint64, err error) {
	stored, err := n.config.Snapshots.List()
	if len(stored) > 0 {
		snapshot = stored[0].Index
	}
	return max(n.raft.CommitIndex(), n.raft.AppliedIndex()), snapshot, err
}

// spareCommitted refuses a deletion of committed entries from lo on, unless a snapshot takes their place: that begins
// with the log's first entry, and within the snapshot. The store keeps what is behind the snapshot's end.
func (l *parallelLog) spareCommitted(lo uint64) error {
	bounds := l.bounds.Load()
	if bounds == nil {
		return nil
	}
	first, err := l.store.FirstIndex()
	if err != nil {
		return err
	}
	committed, snapshot, err := (*bounds)()
	if err != nil || lo > committed || lo <= first && lo <= snapshot {
		return err
	}
	return l.end(fmt.Errorf("log entries %d to %d are committed, and %s", lo, committed, lostMembers))
}

// end has the node end because of err: the log takes no more.
func (l *parallelLog) end(err error) error {
	l.mu.Lock()
	l.err = err
	l.written.Broadcast()
	l.mu.Unlock()
	l.fail(err)
	return err
}

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
