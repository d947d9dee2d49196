package replica

import (
	"context"
	"errors"
	"fmt"
)

// TransferLeadership has another node lead, if this node leads and there is another.
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

// transfer tries once to end l. Meanwhile nothing is proposed: raft would refuse the entry and tell
// only the future, which has no reader.
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
