package raftnode

import (
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
)

// Replayed describes the stores of a stopped node.
type Replayed struct {
	// Snapshot is the index of the newest snapshot, up to which all is committed. The log ends at Last.
	Snapshot, Last uint64
	Term           uint64 // of the last entry
	// Members is the newest configuration in snapshot and log, committed or not.
	Members members.Configuration
}

// Replay restores the newest snapshot into a machine and applies all later entries, including those not known to be
// committed.
func Replay(log raft.LogStore, snapshots raft.SnapshotStore, m interface {
	Restore(snapshot io.Reader) error
	Apply(data []byte) error
},
) (r Replayed, err error) {
	list, err := snapshots.List()
	if err != nil {
		return r, err
	}
	if len(list) > 0 {
		meta, state, err := snapshots.Open(list[0].ID)
		if err != nil {
			return r, err
		}
		defer state.Close()
		if err := m.Restore(state); err != nil {
			return r, fmt.Errorf("restore snapshot %s: %w", meta.ID, err)
		}
		r = Replayed{Snapshot: meta.Index, Last: meta.Index, Term: meta.Term, Members: store.FromRaft(meta).Members}
	}
	last, err := log.LastIndex()
	for i := r.Last + 1; err == nil && i <= last; i++ {
		err = r.entry(log, i, m.Apply)
	}
	return r, err
}

func (r *Replayed) entry(log raft.LogStore, index uint64, apply func([]byte) error) error {
	var l raft.Log
	if err := log.GetLog(index, &l); err != nil {
		return fmt.Errorf("read log entry %d: %w", index, err)
	}
	r.Last, r.Term = index, l.Term
	switch l.Type {
	case raft.LogConfiguration:
		r.Members = store.MembersFromRaft(raft.DecodeConfiguration(l.Data), index)
	case raft.LogCommand:
		void, _, err := stampOf(&l)
		if err == nil && !void {
			err = apply(l.Data)
		}
		if err != nil {
			return fmt.Errorf("apply log entry %d of term %d: %w", index, l.Term, err)
		}
	}
	return nil
}
