package replica

import (
	"context"
	"sync/atomic"
	"time"
)

// timeouts answers batches that have waited for too long, and tells of proposals
// that hang. It looks at all of them now and then: a timer for each would cost
// more than it is worth. While there is nothing to look at it is parked.
type timeouts struct {
	r        *Replica
	wake     chan struct{}
	parked   atomic.Bool
	reported bool // the present stall was told of
}

func newTimeouts(r *Replica) *timeouts { return &timeouts{r: r, wake: make(chan struct{}, 1)} }

// poke is called after something to look at has been added.
func (s *timeouts) poke() {
	if s.parked.Load() && s.parked.CompareAndSwap(true, false) {
		notify(s.wake)
	}
}

func (s *timeouts) run(ctx context.Context) error {
	every := max(s.r.config.CommandTimeout/32, time.Millisecond)
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ctx.Done():
			return nil
		}
		now := time.Now()
		s.r.writes.expire(now)
		s.r.reads.expire(now)
		s.stall(now)
		if s.idle() {
			s.parked.Store(true)
		}
		// Whoever came before the flag was set did not poke: look once more.
		if !s.idle() {
			s.parked.Store(false)
			timer.Reset(every)
		}
	}
}

func (s *timeouts) idle() bool {
	l := s.r.serving.Load()
	return s.r.writes.empty() && s.r.reads.empty() && (l == nil || l.inFlight.Load() == 0)
}

// stall tells once of each time that proposals hang.
func (s *timeouts) stall(now time.Time) {
	l := s.r.serving.Load()
	if l == nil || l.inFlight.Load() == 0 {
		s.reported = false
		return
	}
	age := now.Sub(time.Unix(0, l.progress.Load()))
	hangs := age >= s.r.config.ElectionTimeout
	if hangs && !s.reported {
		s.r.event(ProposalStalled{Age: age})
	}
	s.reported = hangs
	if age >= 2*s.r.config.CommandTimeout && s.r.node.Last() == s.r.state.index.load() {
		// Raft has nothing on its way: it has refused an entry and told only the future. It
		// should not, see transfer. Serving anew gives everything that waits to raft again.
		s.r.leadership.restart.Store(true)
		notify(s.r.leadership.changed)
	}
}
