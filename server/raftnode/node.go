package raftnode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/store"
)

// Node is a member's raft and everything around raft.
type Node struct {
	config         Config
	raft           *raft.Raft
	configurations *configurations
	snapshots      *mendedSnapshots
	stable         *stable
	transport      *transport
	filter         *rpcFilter
	log            *parallelLog
	acks           *acks
	applier        *applier
	failover       *fastFailover
	progress       *progress
	commits        *commitNotifier

	running  atomic.Bool          // the owner hears of changes
	gone     atomic.Bool          // this node was removed
	removals chan committedChange // members that may not know that they are gone
	changing chan struct{}        // held by Change, and by a transfer: one at a time

	stopped chan struct{} // closed when the node begins to stop
	down    raft.Future   // raft's end, once asked for
}

// Stop has raft end, and raft's calls fail from here on. Stop reports whether raft will end: raft
// does not once a term could not be stored.
func (n *Node) Stop() bool {
	close(n.stopped)
	n.down = n.raft.Shutdown()
	select {
	case <-n.stable.lost:
		return false
	default:
	}
	_ = n.transport.Close() // else raft waits for nodes that do not answer
	return true
}

// Wait returns when raft and its pipelines have ended, and what raft appended is on the disk, after [Node.Stop].
func (n *Node) Wait() error {
	err := n.down.Error()
	n.transport.pipelines.Wait() // raft opens no more
	return errors.Join(err, n.log.flush())
}

// Propose gives an entry to raft for term. Propose returns when raft's main loop has taken the
// entry, at once or after the append before.
//
// The term and the flags travel with the entry. Raft may take the entry only after this node lost
// the leadership and won another: such an entry is void on every node.
//
// The future is not looked at. Success is seen when the entry is applied, failure when the
// leadership ends. When raft is shut down futures can stay without an answer.
func (n *Node) Propose(term uint64, entry []byte, flags ...byte) {
	n.raft.ApplyLog(raft.Log{Data: entry, Extensions: append(binary.AppendUvarint(nil, term), flags...)}, 0)
}

// proposeVoid gives raft an entry that is void on every node: term 0 is no leadership's.
func (n *Node) proposeVoid() { n.Propose(0, nil) }

// Leading returns the term and whether this node leads in that term, as of one instant.
func (n *Node) Leading() (term uint64, leading bool) {
	term = n.raft.CurrentTerm()
	return term, n.raft.State() == raft.Leader && n.raft.CurrentTerm() == term
}

// Leads reports whether this node leads term.
func (n *Node) Leads(term uint64) bool {
	t, leading := n.Leading()
	return leading && t == term
}

// Leader returns the term and the leader's ID, as of one instant: raft forgets a leader before going to
// the next term. The ID is empty while no leader is known.
func (n *Node) Leader() (term uint64, leader string) {
	for {
		term = n.raft.CurrentTerm()
		_, id := n.raft.LeaderWithID()
		if n.raft.CurrentTerm() == term {
			return term, string(id)
		}
	}
}

// Term returns raft's term.
func (n *Node) Term() uint64 { return n.raft.CurrentTerm() }

// Committed, Applied and Last return how far the log is committed, given to the machine, and
// written.
func (n *Node) Committed() uint64 { return n.raft.CommitIndex() }

// Applied returns the index of the newest entry that raft gave to the machine.
func (n *Node) Applied() uint64 { return n.raft.AppliedIndex() }

// Last returns the index of the log's last entry.
func (n *Node) Last() uint64 { return n.raft.LastIndex() }

// Broken reports whether an entry could not be applied: the state follows the log no more.
func (n *Node) Broken() bool { return n.applier.broken.Load() }

// TakeSnapshot captures the state into a snapshot now, whatever the policy says.
func (n *Node) TakeSnapshot() error { return n.raft.Snapshot().Error() }

// parts are what raft is opened over.
type parts struct {
	machine   raft.FSM
	log       raft.LogStore
	stable    raft.StableStore
	snapshots raft.SnapshotStore
	transport raft.Transport
}

// OpenSnapshot opens a snapshot that ends at from or later, for a member whose newest one is damaged. If there is none,
// one is taken: all that this node has applied is committed.
func (n *Node) OpenSnapshot(from uint64) (store.Snapshot, io.ReadCloser, error) {
	if n.applier.quarantine.on() {
		return store.Snapshot{}, nil, ErrQuarantined
	}
	snapshot, r, err := n.openNewest(from)
	if err == nil {
		return snapshot, r, nil
	}
	if applied := n.Applied(); applied < from {
		err = fmt.Errorf("the state here ends at index %d, and is needed up to %d", applied, from)
		return store.Snapshot{}, nil, err
	}
	taken := n.TakeSnapshot()
	if snapshot, r, err = n.openNewest(from); err != nil && taken != nil {
		err = fmt.Errorf("take snapshot: %w", taken)
	}
	return snapshot, r, err
}

func (n *Node) openNewest(from uint64) (store.Snapshot, io.ReadCloser, error) {
	stored, err := n.snapshots.List()
	switch {
	case err != nil:
		return store.Snapshot{}, nil, err
	case len(stored) == 0 || stored[0].Index < from:
		return store.Snapshot{}, nil, fmt.Errorf("there is no snapshot up to index %d", from)
	}
	meta, r, err := n.snapshots.Open(stored[0].ID)
	if err != nil {
		return store.Snapshot{}, nil, err
	}
	return store.FromRaft(meta), r, nil
}
