package replica

import (
	"context"
	"time"
)

// WaitReplicated waits until n other nodes have on disk what was committed at the time of the call, until timeout has
// passed (0: no limit), or until ctx ends. It returns the number of such nodes.
//
// An acknowledged write is on a majority, so that is the least result, even without a leader.
func (r *Replica) WaitReplicated(ctx context.Context, n int, timeout time.Duration) int {
	if r.serving.Load() != nil {
		return r.waitHere(ctx, n, timeout)
	}
	answer := r.toLeader.Wait(n, timeout)
	select {
	case got, ok := <-answer:
		if ok {
			return got
		}
	case <-ctx.Done():
	}
	return r.node.Quorum()
}

// AwaitApplied waits until this node's state has the write that Execute gave the number. The leader's reply may arrive
// before. It waits no longer than a command may take, since even a node that is behind replies with what it has. It
// reports whether the state has the write.
func (r *Replica) AwaitApplied(ctx context.Context, number uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, r.config.CommandTimeout)
	defer cancel()
	for number > 0 {
		index := r.state.index.load() // before the check: a later entry raises the index
		if r.machine.Applied(r.origin, number) {
			break
		}
		if r.state.index.wait(index+1, r.stopped, ctx.Done()) != nil {
			return false
		}
	}
	return true
}

// waitHere is WaitReplicated on the leader.
func (r *Replica) waitHere(ctx context.Context, n int, timeout time.Duration) int {
	l := r.serving.Load()
	if l == nil {
		return r.node.Quorum()
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	w := r.node.AwaitMatch(l.term, n)
	select {
	case <-w.Done():
	case <-l.gone:
	case <-ctx.Done():
	}
	return max(w.End(), r.node.Quorum())
}
