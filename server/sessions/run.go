package sessions

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"
)

const (
	// renewRetryInterval is the time between two attempts.
	renewRetryInterval = 100 * time.Millisecond
	// noDeadline is the sleep of a goroutine that only a wake ends.
	noDeadline = time.Duration(math.MaxInt64)
)

// renewAfter is the age of a renewal at which the next one begins, and trustedFor the age at which a client must no
// longer rely on its session. The remaining eighth of the lease allows for clocks that differ.
func renewAfter(lease time.Duration) time.Duration { return lease / 3 }
func trustedFor(lease time.Duration) time.Duration { return lease - lease/8 }

// run renews sessions until ctx ends.
func (r *Renewer) run(ctx context.Context) {
	timer := time.NewTimer(noDeadline)
	defer timer.Stop()
	for {
		r.forgetExpected()
		renew, sleep := r.next(time.Now())
		if !renew {
			set(timer, sleep)
			select {
			case <-timer.C:
			case <-r.wakeRenewer:
			case <-ctx.Done():
				return
			}
			continue
		}
		began := time.Now()
		if r.cluster.Renew() == nil {
			r.renewedAt(began)
			continue
		}
		select {
		case <-time.After(renewRetryInterval):
		case <-ctx.Done():
			return
		}
	}
}

// set starts the timer, or stops it for noDeadline.
func set(timer *time.Timer, sleep time.Duration) {
	if sleep == noDeadline {
		timer.Stop()
		return
	}
	timer.Reset(sleep)
}

// next returns whether to renew the sessions now, and otherwise how long to sleep. It also ends the sessions of closed
// connections whose time is over.
func (r *Renewer) next(now time.Time) (renew bool, sleep time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sleep = noDeadline
	waiting := r.endLater[:0]
	for _, c := range r.endLater {
		if left := c.at.Sub(now); left > 0 {
			waiting = append(waiting, c)
			sleep = min(sleep, left)
		} else {
			r.departures.addConn(c.conn)
		}
	}
	if r.endLater = waiting; len(waiting) == 0 {
		r.endLater = nil
	}
	if shortest, some := r.sessions.Min(); some {
		left := r.renewed.Add(renewAfter(shortest.lease)).Sub(now)
		renew = left <= 0
		sleep = min(sleep, left)
	}
	return renew, sleep
}

// renewedAt records the start of an acknowledged renewal.
func (r *Renewer) renewedAt(began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renewed = began
}

// forgetExpected removes expected sessions whose batch is in this node's log.
func (r *Renewer) forgetExpected() {
	r.mu.Lock()
	some := slices.Collect(maps.Keys(r.expected))
	r.mu.Unlock()
	for _, s := range some {
		if r.cluster.Applied(s.number) {
			r.forgetIfConnected(s)
		}
	}
}

func (r *Renewer) forgetIfConnected(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.clients[s.conn]; c != nil {
		r.sessions.Delete(s)
		r.removeExpected(c, s)
	}
}

// runCutter closes connections whose sessions were not renewed in time or whose clients are silent, until ctx ends.
func (r *Renewer) runCutter(ctx context.Context) {
	timer := time.NewTimer(noDeadline)
	defer timer.Stop()
	for {
		now := time.Now()
		set(timer, min(r.cutUnrenewed(now), r.cutSilent(now)))
		select {
		case <-timer.C:
		case <-r.wakeCutter:
		case <-ctx.Done():
			return
		}
	}
}

// whyCut is the reason in the log.
const whyCut = "its session could not be renewed in time"

// cutUnrenewed closes connections whose sessions were not renewed in time, and returns the time until the next check.
func (r *Renewer) cutUnrenewed(now time.Time) (sleep time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sleep = noDeadline
	var late []int64
	r.sessions.Scan(func(s *session) bool {
		left := r.renewed.Add(trustedFor(s.lease)).Sub(now)
		if left > 0 {
			sleep = min(sleep, left) // the following sessions have longer leases
			return false
		}
		if left = s.since.Add(trustedFor(s.lease)).Sub(now); left > 0 {
			sleep = min(sleep, left)
			return true
		}
		late = append(late, s.conn)
		return true
	})
	for _, conn := range late {
		r.cutOff(conn)
	}
	return sleep
}

// cutOff closes a connection whose sessions were not renewed in time. The caller holds r.mu.
func (r *Renewer) cutOff(conn int64) {
	c := r.clients[conn]
	if c.cut {
		return
	}
	r.abandonSessions(c, 0)
	r.cuts++
	c.to.Cut(whyCut)
}
