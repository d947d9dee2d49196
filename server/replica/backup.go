package replica

import (
	"context"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
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
		b := Batch{Body: protocol.AppendAlive(nil), Count: 1, Write: true}
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
