package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/server/raftnode"
)

// TransferLeadership has the voter with the ID lead, or any other voter for an empty ID, if this node leads. Without
// another voter it does nothing for an empty ID. This node keeps the leadership until the other node has almost the
// whole log.
func (r *Replica) TransferLeadership(ctx context.Context, to string) error {
	if err := r.mayTransfer(to); err != nil || to == "" && r.node.OtherVoters() == 0 {
		return err
	}
	for range transferAttempts {
		l := r.serving.Load()
		if l == nil {
			return nil
		}
		successor, err := r.node.Successor(ctx, to)
		if err == nil {
			err = r.transfer(ctx, l, successor)
		}
		if err != nil {
			return fmt.Errorf("transfer leadership: %w", err)
		}
	}
	if r.serving.Load() != nil {
		return errors.New("transfer leadership: no other node takes it")
	}
	return nil
}

// mayTransfer returns why the node with the ID cannot lead, or nil.
func (r *Replica) mayTransfer(to string) error {
	switch m, ok := r.node.Configuration().Find(to); {
	case to == "":
		return nil
	case !ok:
		return fmt.Errorf("transfer leadership to %s: %w", to, raftnode.ErrNotMember)
	case !m.Voter:
		return fmt.Errorf("transfer leadership to %s: %w", to, raftnode.ErrNotVoter)
	case to == r.config.ID && r.serving.Load() != nil:
		return fmt.Errorf("transfer leadership to %s: that node leads already", to)
	}
	return nil
}

const transferAttempts = 3

// giveUp has another voter lead, since none has acknowledged an entry of l for age.
func (r *Replica) giveUp(l *leaderTerm, age time.Duration) {
	r.askOthers(func() { // ends when all voters were asked, or with the leadership or the node
		r.event(LeadershipGivenUp{Term: l.term, Age: age, Asked: r.node.GiveUp(l.term, l.gone)})
	})
}

// askOthers has ask run on a goroutine that Run waits for, unless one runs already. The caller's goroutine is one of
// Run's.
func (r *Replica) askOthers(ask func()) {
	if !r.asking.CompareAndSwap(false, true) {
		return
	}
	r.parts.Go(func() {
		defer r.asking.Store(false)
		ask()
	})
}

// transfer tries once to end l. Nothing is proposed meanwhile.
func (r *Replica) transfer(ctx context.Context, l *leaderTerm, to string) error {
	if err := r.proposer.hold(ctx); err != nil {
		return err
	}
	defer func() {
		r.proposer.release()
		notify(r.proposer.wake)
	}()
	for l.inFlight.Load() > 0 {
		select {
		case <-l.landed:
		case <-l.gone:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return r.node.TransferTo(ctx, to, l.gone)
}
