package replica

import (
	"context"
	"errors"
	"fmt"
)

// TransferLeadership has another node lead, if this one does and there is another.
func (r *Replica) TransferLeadership(ctx context.Context) error {
	if len(r.config.InitialCluster) == 1 {
		return nil
	}
	for range transferAttempts {
		l := r.serving.Load()
		if l == nil {
			return nil
		}
		if err := r.transfer(ctx, l); err != nil {
			return fmt.Errorf("transfer leadership: %w", err)
		}
	}
	if r.serving.Load() != nil {
		return errors.New("transfer leadership: no other node takes it")
	}
	return nil
}

const transferAttempts = 3

// transfer tries once to end l. While it tries nothing is proposed: raft would
// refuse it without a word to anybody but the future, which nobody looks at.
func (r *Replica) transfer(ctx context.Context, l *leaderTerm) error {
	if err := r.proposer.hold(ctx); err != nil {
		return err
	}
	defer notify(r.proposer.wake)
	defer r.proposer.release()
	for l.inFlight.Load() > 0 {
		select {
		case <-l.landed:
		case <-l.gone:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return r.node.Transfer(ctx, l.gone)
}
