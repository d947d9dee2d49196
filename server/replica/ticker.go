package replica

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/fsm"
)

// The intervals at which the leader commits cluster time while some key has a deadline.
const (
	// heartbeatStamp bounds the time that leases gain when the leader dies.
	heartbeatStamp = time.Second
	// expiryGap is the least time between two entries that only end leases. Reads and writes have stamps of their own, and
	// do not wait for it. There is no gap behind an entry that leaves ended leases.
	expiryGap = 10 * time.Millisecond
)

// ticker ends leases while this node leads: it sleeps until the earliest deadline, and requests a stamp. It also reads
// the cluster clock so often that the clock's cap cuts off no time, and has cluster time committed once a second.
// Without deadlines it sleeps, and the log is idle.
type ticker struct {
	serving *atomic.Pointer[leaderTerm]
	machine fsm.Machine
	// want requests an entry that brings cluster time to stampMillis.
	want func(l *leaderTerm, stampMillis int64)
	wake chan struct{}
	// armed is the deadline that the ticker sleeps for. It is beyond any deadline if there is none.
	armed atomic.Int64
}

func newTicker(serving *atomic.Pointer[leaderTerm], machine fsm.Machine, want func(*leaderTerm, int64)) *ticker {
	t := &ticker{serving: serving, machine: machine, want: want, wake: make(chan struct{}, 1)}
	t.armed.Store(math.MaxInt64)
	return t
}

// rearm wakes the ticker of a leader if there is an earlier deadline than armed.
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
	var last time.Time // the time of the last stamp that a deadline required
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

// tick requests a stamp if a deadline is due. It returns how long to sleep, or 0 to sleep until woken.
func (t *ticker) tick(last *time.Time) time.Duration {
	l := t.serving.Load()
	if l == nil {
		t.armed.Store(math.MaxInt64)
		return 0
	}
	// armed is set before the deadline is looked up, so that an earlier deadline that is added meanwhile wakes the ticker.
	t.armed.Store(math.MaxInt64)
	applied, _ := t.machine.Clock()
	deadline, ok := t.machine.NextDue()
	if !ok {
		return 0
	}
	t.armed.Store(deadline)
	now, _ := l.clock.read()
	gap := expiryGap
	if deadline <= applied {
		gap = 0
	}
	// Half the cap: the clock loses no time even if the timer is late by as much again.
	wait := l.clock.step / 2
	switch untilMillis := deadline - now; {
	case untilMillis >= wait.Milliseconds(): // also a time that no time.Duration can hold
	case untilMillis > 0:
		wait = time.Duration(untilMillis) * time.Millisecond
	case applied < now && time.Since(*last) >= gap:
		*last = time.Now()
		t.want(l, now)
		wait = min(wait, gap)
	default:
		wait = min(wait, gap)
	}
	if age := time.Duration(now-applied) * time.Millisecond; age >= heartbeatStamp {
		t.want(l, now)
	} else {
		wait = min(wait, heartbeatStamp-age)
	}
	return max(wait, time.Millisecond)
}
