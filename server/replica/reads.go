package replica

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
)

// rounds are the leadership checks that reads wait for. There is one at a time;
// whoever comes while one is on its way shares the next. So a read is answered only after
// a majority has confirmed this leader at an instant after the read arrived.
type rounds struct {
	r    *Replica
	wake chan struct{}

	mu      sync.Mutex
	next    *round // nil until somebody waits for it
	stopped bool
}

// round is one leadership check; err is set before done is closed.
type round struct {
	done chan struct{}
	err  error
}

func newRounds(r *Replica) *rounds { return &rounds{r: r, wake: make(chan struct{}, 1)} }

// confirm returns nil when the state on this node is at least what it was
// anywhere when confirm was called.
func (rs *rounds) confirm() error {
	rs.mu.Lock()
	if rs.stopped {
		rs.mu.Unlock()
		return protocol.ErrStopping
	}
	r := rs.next
	if r == nil {
		r = &round{done: make(chan struct{})}
		rs.next = r
		notify(rs.wake)
	}
	rs.mu.Unlock()
	<-r.done
	return r.err
}

func (rs *rounds) run(ctx context.Context) error {
	defer func() {
		rs.mu.Lock()
		rs.stopped = true
		rs.mu.Unlock()
		rs.begin().end(protocol.ErrStopping)
	}()
	for {
		select {
		case <-rs.wake:
		case <-ctx.Done():
			return nil
		}
		r := rs.begin()
		if r == nil {
			continue
		}
		err := rs.check(ctx)
		r.end(err)
		if err == protocol.ErrNoLeader {
			// Whoever came meanwhile has waited long enough, too.
			rs.begin().end(err)
		}
	}
}

// begin takes the round that readers have been waiting for: from now on they wait for another.
func (rs *rounds) begin() *round {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.next
	rs.next = nil
	return r
}

// end releases the readers of r, if there are any.
func (r *round) end(err error) {
	if r != nil {
		r.err = err
		close(r.done)
	}
}

// check is one round.
func (rs *rounds) check(ctx context.Context) error {
	l := rs.r.serving.Load()
	if l == nil {
		return errReroute
	}
	ctx, cancel := context.WithTimeout(ctx, rs.r.config.CommandTimeout)
	defer cancel()
	// What was acknowledged to a client before now is committed up to index. Entries of
	// this term all reach the state machine, and it has applied one: so it will reach index.
	confirmed, index := rs.r.node.BeginRound(l.term)
	defer confirmed.End()
	select {
	case <-confirmed.Done():
	case <-l.gone:
		return errReroute
	case <-ctx.Done():
		return protocol.ErrNoLeader
	}
	if !rs.r.node.Leads(l.term) {
		// The leadership has not noticed yet. Readers who ask again before it has would spin.
		select {
		case <-l.gone:
		case <-ctx.Done():
		}
		return errReroute
	}
	return rs.r.state.index.wait(index, l.gone, ctx.Done())
}

// read answers a batch that only reads, on whichever node it can be.
func (r *Replica) read(u *Batch, deadline time.Time) error {
	for {
		err := r.readOnce(u, deadline)
		if err != errReroute {
			return err
		}
		if !time.Now().Before(deadline) {
			return protocol.ErrNoLeader
		}
	}
}

func (r *Replica) readOnce(u *Batch, deadline time.Time) error {
	if r.serving.Load() == nil {
		return r.reads.run(u, deadline)
	}
	if confirmsLeadership {
		if err := r.rounds.confirm(); err != nil {
			return err
		}
	}
	var err error
	u.Replies, err = r.readHere(string(u.Body), u.Count, deadline)
	return err
}

// readHere reads this node's state at the leader's time. The caller has
// confirmed that this node leads.
func (r *Replica) readHere(body string, count int, deadline time.Time) ([]protocol.Value, error) {
	replies, rest, err := r.readSome(body, count, deadline, fsm.Glance)
	if err == nil && rest != "" {
		replies, err = r.readOn(replies, rest, count, deadline)
	}
	return replies, err
}

// readOn reads the rest of a batch that is more than a glance. Batches take turns, one at a time:
// entries wait for whoever reads, and reads for them.
func (r *Replica) readOn(replies []protocol.Value, rest string, count int, deadline time.Time) ([]protocol.Value, error) {
	late := time.NewTimer(time.Until(deadline))
	defer late.Stop()
	for rest != "" {
		select {
		case r.turns <- struct{}{}:
		case <-late.C:
			for len(replies) < count {
				replies = append(replies, protocol.ErrNoRoom.Value())
			}
			return replies, nil
		}
		more, left, err := r.readSome(rest, count-len(replies), deadline, fsm.Turn)
		<-r.turns
		if err != nil {
			return nil, err
		}
		replies, rest = append(replies, more...), left
	}
	return replies, nil
}

// readSome reads what one call of the machine answers, and returns what is left of body.
func (r *Replica) readSome(body string, count int, deadline time.Time, a fsm.Attention) (replies []protocol.Value, rest string, err error) {
	l := r.serving.Load()
	if l == nil {
		return nil, "", errReroute
	}
	for {
		stamp, offset := l.clock.read()
		replies, rest, due, err := r.machine.Read(body, count, stamp, offset, a)
		if err != nil {
			r.config.Logger.Error("read state", "error", err)
			return nil, "", errInternal
		}
		if !due {
			return replies, rest, nil
		}
		// A lease ends when the log says so. A key that the leader thinks is due is
		// neither there nor gone until an entry with that stamp is applied.
		if err := r.reachStamp(l, stamp, deadline); err != nil {
			return nil, "", err
		}
	}
}

// reachStamp has cluster time brought to stampMillis by the log.
func (r *Replica) reachStamp(l *leaderTerm, stampMillis int64, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	r.proposer.want(l, stampMillis)
	return r.state.stamps.wait(uint64(stampMillis), l.gone, ctx.Done())
}
