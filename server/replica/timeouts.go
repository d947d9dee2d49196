package replica

import (
	"context"
	"sync/atomic"
	"time"
)

// timeouts answers batches that have waited for too long, and tells of proposals that hang. A
// single goroutine looks at all of them now and then, as a timer for each would cost too much.
// While there is nothing to look at the goroutine is parked.
type timeouts struct {
	timeoutsConfig
	wake     chan struct{}
	parked   atomic.Bool
	reported bool // the present stall was told of
}

// timeoutsConfig is what timeouts are handed.
type timeoutsConfig struct {
	serving       *atomic.Pointer[leaderTerm]
	writes, reads *queue
	command       time.Duration // how long a command may take
	// stalled is told once of each time that proposals hang for that long.
	stalledAfter time.Duration
	stalled      func(age time.Duration)
	// idle reports whether raft has nothing on its way, and restart has the node serve anew.
	idle    func() bool
	restart func()
}

func newTimeouts() *timeouts { return &timeouts{wake: make(chan struct{}, 1)} }

// poke is called after something to look at has been added.
func (s *timeouts) poke() {
	if s.parked.Load() && s.parked.CompareAndSwap(true, false) {
		notify(s.wake)
	}
}

func (s *timeouts) run(ctx context.Context) error {
	every := max(s.command/32, time.Millisecond)
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
		s.writes.expire(now)
		s.reads.expire(now)
		s.stall(now)
		if !s.park(s.parkable) {
			timer.Reset(every)
		}
	}
}

// park has poke wake the goroutine, which needs no timer then, if there is nothing to look at.
func (s *timeouts) park(parkable func() bool) bool {
	if !parkable() {
		return false
	}
	s.parked.Store(true)
	if parkable() {
		return true
	}
	s.parked.Store(false) // a batch that came before the flag was set did not poke
	return false
}

// parkable reports whether there is nothing to look at.
func (s *timeouts) parkable() bool {
	l := s.serving.Load()
	return s.writes.empty() && s.reads.empty() && (l == nil || l.inFlight.Load() == 0)
}

// stall tells once of each time that proposals hang.
func (s *timeouts) stall(now time.Time) {
	l := s.serving.Load()
	if l == nil || l.inFlight.Load() == 0 {
		s.reported = false
		return
	}
	age := now.Sub(time.Unix(0, l.progress.Load()))
	hangs := age >= s.stalledAfter
	if hangs && !s.reported {
		s.stalled(age)
	}
	s.reported = hangs
	if age >= 2*s.command && s.idle() {
		// Raft has no entry in flight: raft has refused an entry and told only the future. That
		// should not happen, see transfer. Serving anew gives everything that waits to raft again.
		s.restart()
	}
}
