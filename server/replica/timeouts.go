package replica

import (
	"context"
	"sync/atomic"
	"time"
)

// timeouts times batches out, and reports proposals that hang. One goroutine checks all of them at intervals, since a
// timer for each would be too expensive. It is parked while there is nothing to check.
type timeouts struct {
	timeoutsConfig
	wake     chan struct{}
	parked   atomic.Bool
	reported time.Time // the time of the last report of the present stall, or zero
	acknowledged
}

// acknowledged has the progress of the other voters when any of them last acknowledged an entry of the leader of term.
type acknowledged struct {
	term, sum uint64
	since     time.Time
	patience  time.Duration // the time after which the leadership is given up
}

// timeoutsConfig has the functions and values that timeouts needs.
type timeoutsConfig struct {
	serving       *atomic.Pointer[leaderTerm]
	writes, reads *queue
	command       time.Duration // the time limit of a command
	// stalled is called when proposals hang for stalledAfter, and again every stalledAgain.
	stalledAfter time.Duration
	stalled      func(age time.Duration)
	// unacknowledged reports whether entries wait for other voters, and returns a sum that grows with each
	// acknowledgement. transfer returns how long the entries may take to these voters. giveUp has another node lead, and
	// must be quick.
	unacknowledged func(term uint64) (sum uint64, so bool)
	transfer       func() time.Duration
	giveUp         func(l *leaderTerm, age time.Duration)
	// idle reports whether raft has nothing in flight. restart has the node serve anew.
	idle    func() bool
	restart func()
}

func newTimeouts() *timeouts { return &timeouts{wake: make(chan struct{}, 1)} }

// poke is called after something to check was added.
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

// park parks the goroutine, without a timer, until poke, if there is nothing to check.
func (s *timeouts) park(parkable func() bool) bool {
	if !parkable() {
		return false
	}
	s.parked.Store(true)
	if parkable() {
		return true
	}
	s.parked.Store(false) // a batch that was added before the flag was set did not wake the goroutine
	return false
}

// parkable reports whether there is nothing to check.
func (s *timeouts) parkable() bool {
	l := s.serving.Load()
	return s.writes.empty() && s.reads.empty() && (l == nil || l.inFlight.Load() == 0)
}

// stalledAgain is the interval of reports about proposals that hang.
const stalledAgain = 5 * time.Second

// stall reports proposals that hang, and gives up a leadership whose entries nobody acknowledges any more.
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
		// Raft has no entry in flight: it has refused an entry, and only the future has the error. That should not happen:
		// see transfer. To serve anew passes all waiting batches to raft again.
		s.restart()
	}
}

// checkVoters gives l up if its entries wait for other voters, and none has acknowledged any entry for the time of two
// commands and of the transfer over the slowest link.
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
