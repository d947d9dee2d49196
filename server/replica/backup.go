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
	Index uint64 // of the newest entry that changed the state
	Term  uint64 // raft's, at that time
	State fsm.Snapshot
}

// Capture captures the state, in constant time. Every write that was acknowledged before the call is in it, on any
// node: an entry of this node's goes through the log first, and Capture waits until it is applied here. The error
// is a row. Stale leaves that out: the state is what the node has.
func (r *Replica) Capture(ctx context.Context, stale bool) (Captured, error) {
	if !stale {
		// The entry renews sessions of connections that are open, which the renewer does all the time.
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

// Digest is a hash of the whole state, and the log index of the last entry that changed the state:
// replicas that name the same index must name the same hash. Digest holds up the log while
// capturing the state, which takes no time to speak of.
func (r *Replica) Digest() (index uint64, hash string) {
	r.state.digesting.Lock()
	index = r.state.changed
	captured := r.machine.Snapshot()
	r.state.digesting.Unlock()
	return index, captured.Hash()
}

// TakeSnapshot captures the state into a snapshot now, whatever the policy says.
func (r *Replica) TakeSnapshot() error { return r.node.TakeSnapshot() }

// OpenSnapshot opens a snapshot of committed state that ends at from or later.
func (r *Replica) OpenSnapshot(from uint64) (store.Snapshot, io.ReadCloser, error) {
	return r.node.OpenSnapshot(from)
}
