package replica

import (
	"context"
	"io"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/store"
)

// Captured is the state of this node at one index of the log.
type Captured struct {
	Index uint64 // the index of the newest entry that changed the state
	Term  uint64 // raft's, at that time
	State fsm.Snapshot
}

// Capture captures the state, in constant time. The state has every write that was acknowledged before the call, by any
// node: Capture sends an entry through the log, and waits until this node has applied it. If stale is set, it captures
// the node's state as it is. The error is a row.
func (r *Replica) Capture(ctx context.Context, stale bool) (Captured, error) {
	if !stale {
		// Renewals of sessions do no harm, and the renewer sends them all the time.
		b := Batch{Body: protocol.AppendNodeKeepalive(nil), Count: 1, Write: true}
		if err := r.Execute(&b); err != nil {
			return Captured{}, err
		}
		if !r.AwaitApplied(ctx, b.Number) {
			return Captured{}, errLags
		}
	}
	if r.quarantined() {
		return Captured{}, protocol.ErrQuarantined // also of a stale capture
	}
	r.state.digesting.Lock()
	defer r.state.digesting.Unlock()
	return Captured{Index: r.state.changed, Term: r.node.Term(), State: r.machine.Snapshot()}, nil
}

// Digest returns a hash of the whole state, and the index of the last entry that changed the state. Replicas with the
// same index must have the same hash. Digest delays the log only while it captures the state, which is short.
func (r *Replica) Digest() (index uint64, hash string) {
	r.state.digesting.Lock()
	index = r.state.changed
	captured := r.machine.Snapshot()
	r.state.digesting.Unlock()
	return index, captured.Hash()
}

// TakeSnapshot writes a snapshot of the present state, whatever the policy.
func (r *Replica) TakeSnapshot() error { return r.node.TakeSnapshot() }

// OpenSnapshot opens a snapshot of committed state with the index from or a later one.
func (r *Replica) OpenSnapshot(from uint64) (store.Snapshot, io.ReadCloser, error) {
	return r.node.OpenSnapshot(from)
}
