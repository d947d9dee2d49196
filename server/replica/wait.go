package replica

import (
	"context"
	"time"
)

// WaitReplicated waits until n other nodes have on disk what was committed at the time of the call,
// or timeout has passed (0: as long as ctx lives). It returns how many have.
//
// An acknowledged write is on a majority: a majority is the least result, also without a leader to
// ask.
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

// AwaitApplied waits until the write that Execute gave that number is in this node's state. The
// leader's reply may be here before. The wait is no longer than a command may take: a node that is
// behind still says what is there. It reports whether the write is there.
func (r *Replica) AwaitApplied(ctx context.Context, number uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, r.config.CommandTimeout)
	defer cancel()
	for number > 0 {
		index := r.state.index.load() // before the look: a later entry raises the index
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
