package replica

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/raftnode"
)

// rounds runs the leadership checks that reads wait for. At most one check runs at a time. Reads that arrive during a
// check wait for the next. So a read is executed only after a majority has confirmed this leader at a time after the
// read arrived.
type rounds struct {
	roundsConfig
	wake chan struct{}

	mu      sync.Mutex
	next    *round // nil until a read waits for it
	stopped bool
}

// roundsConfig has the functions and values that rounds needs.
type roundsConfig struct {
	serving *atomic.Pointer[leaderTerm]
	within  time.Duration // the time limit of a check
	// begin, leads and reached are functions of raft and of the state.
	begin   func(term uint64) (confirmed *raftnode.Acknowledgement, index uint64)
	leads   func(term uint64) bool
	reached func(index uint64, gone, expired <-chan struct{}) error
}

// round is one leadership check; err is set before done is closed.
type round struct {
	done chan struct{}
	err  error
	// deadline is that of the first reader, which closes late when the deadline passes before the check has ended.
	deadline time.Time
	late     chan struct{}
}

func newRounds(c roundsConfig) *rounds {
	return &rounds{roundsConfig: c, wake: make(chan struct{}, 1)}
}

// confirm returns nil once the state of this node has all that the state of any node had when confirm was called. It
// returns protocol.ErrNoLeader at the deadline: the check before may take its whole time, and that of the caller, too.
//
// The first reader of a round has a timer. The others wait without one until the first reader is late.
func (rs *rounds) confirm(deadline time.Time) error {
	r, first, err := rs.join(deadline)
	if err != nil {
		return err
	}
	if !first && !deadline.Before(r.deadline) {
		select {
		case <-r.done:
			return r.err
		case <-r.late:
		}
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-r.done:
		return r.err
	case <-timer.C:
	}
	if first {
		close(r.late)
	}
	return protocol.ErrNoLeader
}

// join returns the next round, and whether the caller is its first reader.
func (rs *rounds) join(deadline time.Time) (r *round, first bool, err error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.stopped {
		return nil, false, protocol.ErrStopping
	}
	if first = rs.next == nil; first {
		rs.next = &round{done: make(chan struct{}), deadline: deadline, late: make(chan struct{})}
		notify(rs.wake)
	}
	return rs.next, first, nil
}

func (rs *rounds) run(ctx context.Context) error {
	defer func() {
		rs.mu.Lock()
		rs.stopped = true
		rs.mu.Unlock()
		rs.take().end(protocol.ErrStopping)
	}()
	for {
		select {
		case <-rs.wake:
		case <-ctx.Done():
			return nil
		}
		r := rs.take()
		if r == nil {
			continue
		}
		err := rs.check(ctx)
		r.end(err)
		if err == protocol.ErrNoLeader {
			// Reads that have arrived meanwhile have waited long enough, too.
			rs.take().end(err)
		}
	}
}

// take takes the round that readers wait for. New readers wait for another one.
func (rs *rounds) take() *round {
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

func (rs *rounds) check(ctx context.Context) error {
	l := rs.serving.Load()
	if l == nil {
		return errReroute
	}
	ctx, cancel := context.WithTimeout(ctx, rs.within)
	defer cancel()
	// Every write that was acknowledged before now is committed, and its index is at most index. All entries of this term
	// reach the state machine, and one of them is applied, so index will be reached.
	index, err := rs.majority(ctx, l)
	if err != nil {
		return err
	}
	if !rs.leads(l.term) {
		// The leadership has not noticed yet. Readers that repeat the check at once would spin.
		select {
		case <-l.gone:
		case <-ctx.Done():
		}
		return errReroute
	}
	return rs.reached(index, l.gone, ctx.Done())
}

// majority waits until a majority has confirmed l. A change of the members restarts the check, since a majority of the
// former members proves nothing about a leader that the present members have elected.
func (rs *rounds) majority(ctx context.Context, l *leaderTerm) (index uint64, err error) {
	for moved := true; moved; {
		var confirmed *raftnode.Acknowledgement
		confirmed, index = rs.begin(l.term)
		select {
		case <-confirmed.Done():
			moved = confirmed.Moved()
		case <-l.gone:
			moved, err = false, errReroute
		case <-ctx.Done():
			moved, err = false, protocol.ErrNoLeader
		}
		confirmed.End()
	}
	return index, err
}
