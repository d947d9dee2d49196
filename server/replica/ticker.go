package replica

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/fsm"
)

// How often the leader commits cluster time while some key has a deadline.
const (
	// heartbeatStamp bounds how much longer a lease becomes when the leader dies.
	heartbeatStamp = time.Second
	// expiryGap is the least time between two entries that only end leases. Reads and writes bring
	// stamps of their own and do not wait for the gap.
	expiryGap = 10 * time.Millisecond
)

// ticker ends leases while this node leads: ticker sleeps until the earliest deadline and has the
// deadline stamped. It also looks at the cluster clock so often that no time is lost to the clock's
// cap, and has cluster time committed once a second. While no key has a deadline the ticker sleeps,
// and the log rests.
type ticker struct {
	serving *atomic.Pointer[leaderTerm]
	machine fsm.Machine
	// want asks for an entry that brings cluster time to stampMillis.
	want func(l *leaderTerm, stampMillis int64)
	wake chan struct{}
	// armed is the deadline that the ticker sleeps for, or further away than any.
	armed atomic.Int64
}

func newTicker(serving *atomic.Pointer[leaderTerm], machine fsm.Machine, want func(*leaderTerm, int64)) *ticker {
	t := &ticker{serving: serving, machine: machine, want: want, wake: make(chan struct{}, 1)}
	t.armed.Store(math.MaxInt64)
	return t
}

// rearm wakes the ticker of a leader if there is an earlier deadline than the ticker sleeps for.
func (t *ticker) rearm() {
	if t.serving.Load() == nil {
		return
	}
	if deadline, ok := t.machine.NextDue(); ok && deadline < t.armed.Load() {
		notify(t.wake)
	}
}

func (t *ticker) run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var last time.Time // of the last stamp asked for because of a deadline
	for {
		wait := t.tick(&last)
		if wait > 0 {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-t.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// tick does what is due and returns how long to sleep; 0: until woken.
func (t *ticker) tick(last *time.Time) time.Duration {
	l := t.serving.Load()
	if l == nil {
		t.armed.Store(math.MaxInt64)
		return 0
	}
	// Armed before the deadline is looked up: an earlier deadline that is added then sends a wake.
	t.armed.Store(math.MaxInt64)
	deadline, ok := t.machine.NextDue()
	if !ok {
		return 0
	}
	t.armed.Store(deadline)
	now, _ := l.clock.read()
	applied, _ := t.machine.Clock()
	// Half the cap: the clock loses nothing when the timer is as late again.
	wait := l.clock.step / 2
	switch untilMillis := deadline - now; {
	case untilMillis >= wait.Milliseconds(): // also what no time.Duration can hold
	case untilMillis > 0:
		wait = time.Duration(untilMillis) * time.Millisecond
	case applied < now && time.Since(*last) >= expiryGap:
		*last = time.Now()
		t.want(l, now)
		wait = min(wait, expiryGap)
	default:
		wait = min(wait, expiryGap)
	}
	if age := time.Duration(now-applied) * time.Millisecond; age >= heartbeatStamp {
		t.want(l, now)
	} else {
		wait = min(wait, heartbeatStamp-age)
	}
	return max(wait, time.Millisecond)
}
