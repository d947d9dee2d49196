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
	reported time.Time // the present stall was told of; zero: it was not
	acknowledged
}

// acknowledged is how far the other voters were when any of them last acknowledged something to the leader of term.
type acknowledged struct {
	term, sum uint64
	since     time.Time
	patience  time.Duration // from then on
}

// timeoutsConfig is what timeouts are handed.
type timeoutsConfig struct {
	serving       *atomic.Pointer[leaderTerm]
	writes, reads *queue
	command       time.Duration // how long a command may take
	// stalled is told of each time that proposals hang for that long, and again every stalledAgain.
	stalledAfter time.Duration
	stalled      func(age time.Duration)
	// unacknowledged reports whether the entries wait for other voters, and counts what these acknowledge. transfer is how
	// long the entries may take to them. giveUp has another node lead, and must be quick.
	unacknowledged func(term uint64) (sum uint64, so bool)
	transfer       func() time.Duration
	giveUp         func(l *leaderTerm, age time.Duration)
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

// stalledAgain is how often it is said that proposals hang.
const stalledAgain = 5 * time.Second

// stall tells of each time that proposals hang, and gives up a leadership whose entries nobody acknowledges any more.
func (s *timeouts) stall(now time.Time) {
	l := s.serving.Load()
	if l == nil || l.inFlight.Load() == 0 {
		s.reported, s.acknowledged = time.Time{}, acknowledged{}
		return
	}
	age := now.Sub(time.Unix(0, l.progress.Load()))
	switch {
	case age < s.stalledAfter:
		s.reported = time.Time{}
	case now.Sub(s.reported) >= stalledAgain:
		s.stalled(age)
		s.reported = now
	}
	if age >= s.command {
		s.checkVoters(l, age, now)
	}
	if age >= 2*s.command && s.idle() {
		// Raft has no entry in flight: raft has refused an entry and told only the future. That
		// should not happen, see transfer. Serving anew gives everything that waits to raft again.
		s.restart()
	}
}

// checkVoters gives l up if its entries wait for other voters, and none of these has acknowledged anything for as
// long as two commands may take, and the entries on the slowest link.
func (s *timeouts) checkVoters(l *leaderTerm, age time.Duration, now time.Time) {
	sum, so := s.unacknowledged(l.term)
	if !so || l.term != s.acknowledged.term || sum != s.sum {
		s.acknowledged = acknowledged{l.term, sum, now, 2*s.command + s.transfer()}
	}
	if now.Sub(s.since) >= s.patience {
		s.since = now
		s.giveUp(l, age)
	}
}
