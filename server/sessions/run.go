package sessions

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"
)

const (
	// renewAgain is the time between two tries.
	renewAgain = 100 * time.Millisecond
	// forever is longer than any sleep.
	forever = time.Duration(math.MaxInt64)
)

// renewAfter is the age of a renewal at which the next one begins, and trustedFor the age at which a client
// must not believe in its session any more. What is left of the lease then is for clocks that differ.
func renewAfter(lease time.Duration) time.Duration { return lease / 3 }
func trustedFor(lease time.Duration) time.Duration { return lease - lease/8 }

// run renews sessions until ctx ends.
func (r *Renewer) run(ctx context.Context) {
	timer := time.NewTimer(forever)
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
		case <-time.After(renewAgain):
		case <-ctx.Done():
			return
		}
	}
}

// set has the timer end a sleep; a sleep for ever has none.
func set(timer *time.Timer, sleep time.Duration) {
	if sleep == forever {
		timer.Stop()
		return
	}
	timer.Reset(sleep)
}

// next reports whether the sessions are to be renewed now, or how long there is nothing to do. The sessions of
// connections that were cut end when their time is over.
func (r *Renewer) next(now time.Time) (renew bool, sleep time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sleep = forever
	waiting := r.later[:0]
	for _, c := range r.later {
		if left := c.at.Sub(now); left > 0 {
			waiting = append(waiting, c)
			sleep = min(sleep, left)
		} else {
			r.departures.addConn(c.conn)
		}
	}
	if r.later = waiting; len(waiting) == 0 {
		r.later = nil
	}
	if shortest, some := r.sessions.Min(); some {
		left := r.renewed.Add(renewAfter(shortest.lease)).Sub(now)
		renew = left <= 0
		sleep = min(sleep, left)
	}
	return renew, sleep
}

// renewedAt notes when a renewal began that was acknowledged.
func (r *Renewer) renewedAt(began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renewed = began
}

// forgetExpected forgets expected sessions whose command this node's log has.
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

// cutLate closes connections whose sessions were not renewed in time.
func (r *Renewer) cutLate(ctx context.Context) {
	timer := time.NewTimer(forever)
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

// whyCut is logged with the connection.
const whyCut = "its session could not be renewed in time"

// cutUnrenewed cuts the connections that are late, and returns how long none will be.
func (r *Renewer) cutUnrenewed(now time.Time) (sleep time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sleep = forever
	var late []int64
	r.sessions.Scan(func(s *session) bool {
		left := r.renewed.Add(trustedFor(s.lease)).Sub(now)
		if left > 0 {
			sleep = min(sleep, left) // as all that follow have as much
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

// cutOff closes a connection. The caller holds r.mu.
func (r *Renewer) cutOff(conn int64) {
	c := r.clients[conn]
	if c.cut {
		return
	}
	r.abandon(c, 0)
	r.cuts++
	c.to.Cut(whyCut)
}
