package replica

import (
	"context"
	"time"
)

// WaitReplicated waits until n other nodes have on disk what was committed when
// it was called, or timeout has passed (0: as long as ctx lives). It returns how
// many have.
//
// Whatever a client got a reply for is on a majority: that is the least it
// returns, also when there is no leader to ask.
func (r *Replica) WaitReplicated(ctx context.Context, n int, timeout time.Duration) int {
	if r.serving.Load() != nil {
		return r.waitHere(ctx, n, timeout)
	}
	answer := r.link.ask(n, timeout)
	select {
	case got, ok := <-answer:
		if ok {
			return got
		}
	case <-ctx.Done():
	}
	return r.acks.quorum
}

// waitHere is WaitReplicated on the leader.
func (r *Replica) waitHere(ctx context.Context, n int, timeout time.Duration) int {
	l := r.serving.Load()
	if l == nil {
		return r.acks.quorum
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	w := r.acks.awaitMatch(l.term, r.raft.CommitIndex(), min(n, len(r.config.InitialCluster)-1))
	select {
	case <-w.done:
	case <-l.gone:
	case <-ctx.Done():
	}
	return max(r.acks.forget(w), r.acks.quorum)
}
