package raftnode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/store"
)

// Node is a member's raft with its transport, log and stores.
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

	running  atomic.Bool          // whether the callbacks of config are called
	gone     atomic.Bool          // whether this node was removed
	removals chan committedChange // changes whose removed members are to be notified
	changing chan struct{}        // semaphore of Change and of transfers

	stopped chan struct{} // closed by Stop
	down    raft.Future   // done when raft has ended; set by Stop
}

// Stop begins to end raft, whose calls fail from then on. It returns false if raft will not end, because a term could
// not be stored.
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

// Wait waits, after [Node.Stop], until raft and its pipelines have ended and everything appended is on the disk.
func (n *Node) Wait() error {
	err := n.down.Error()
	n.transport.pipelines.Wait() // raft has ended, so it opens no more
	return errors.Join(err, n.log.flush())
}

// Propose passes an entry to raft for term. It returns when raft's main loop has accepted the entry, which may take as
// long as the previous append.
//
// The entry carries term and flags. If raft accepts it only after this node has lost the leadership and won another,
// the entry is void on every node.
//
// The future is ignored, since raft may never answer it when it shuts down. The entry succeeds when it is applied, and
// fails when the leadership ends.
func (n *Node) Propose(term uint64, entry []byte, flags ...byte) {
	n.raft.ApplyLog(raft.Log{Data: entry, Extensions: append(binary.AppendUvarint(nil, term), flags...)}, 0)
}

// proposeVoid proposes an entry that is void on every node, since no leadership has term 0.
func (n *Node) proposeVoid() { n.Propose(0, nil) }

// Leading returns the term and whether this node leads it, both as of one instant.
func (n *Node) Leading() (term uint64, leading bool) {
	term = n.raft.CurrentTerm()
	return term, n.raft.State() == raft.Leader && n.raft.CurrentTerm() == term
}

// Leads reports whether this node leads term.
func (n *Node) Leads(term uint64) bool {
	t, leading := n.Leading()
	return leading && t == term
}

// Leader returns the term and its leader's ID, empty if unknown. Both are as of one instant, since raft clears the
// leader before it enters the next term.
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

// Committed returns raft's commit index.
func (n *Node) Committed() uint64 { return n.raft.CommitIndex() }

// Applied returns the index of the newest entry that raft has passed on to be applied.
func (n *Node) Applied() uint64 { return n.raft.AppliedIndex() }

// Last returns the index of the log's last entry.
func (n *Node) Last() uint64 { return n.raft.LastIndex() }

// LastTerm returns the term of the last entry of log and snapshot: terms do not decrease along a log.
func (n *Node) LastTerm() (term uint64) {
	stats := n.raft.Stats()
	for _, name := range []string{"last_log_term", "last_snapshot_term"} {
		number, _ := strconv.ParseUint(stats[name], 10, 64)
		term = max(term, number)
	}
	return term
}

// Broken reports whether an entry could not be applied, after which none is.
func (n *Node) Broken() bool { return n.applier.broken.Load() }

// TakeSnapshot takes a snapshot now, whatever the policy.
func (n *Node) TakeSnapshot() error { return n.raft.Snapshot().Error() }

// parts are raft's dependencies.
type parts struct {
	machine   raft.FSM
	log       raft.LogStore
	stable    raft.StableStore
	snapshots raft.SnapshotStore
	transport raft.Transport
}

// OpenSnapshot opens a snapshot that ends at index from or later, for a member whose newest one is damaged. If none can
// be opened and this node has applied from, it takes one.
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
