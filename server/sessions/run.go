package sessions

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

const (
	// renewAgain is the time between two tries.
	renewAgain = 100 * time.Millisecond
	// closedTogether is the number of closed connections in one request.
	closedTogether = 1000
	// forever is longer than any sleep.
	forever = time.Duration(math.MaxInt64)
)

// renewAfter is the age of a renewal at which the next one begins, and trustedFor the age at which a client
// must not believe in its session any more. What is left of the lease then is for clocks that differ.
func renewAfter(lease time.Duration) time.Duration { return lease / 3 }
func trustedFor(lease time.Duration) time.Duration { return lease - lease/8 }

// Run renews sessions until ctx ends.
func (r *Renewer) Run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { r.cutLate(ctx) })
	r.renew(ctx)
	all.Wait()
	return nil
}

// renew proposes what is to be proposed, one request at a time.
func (r *Renewer) renew(ctx context.Context) {
	timer := time.NewTimer(forever)
	defer timer.Stop()
	for {
		r.forgetExpected()
		closed, renew, sleep := r.next(time.Now())
		if len(closed) == 0 && !renew {
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
		err := r.cluster.Propose(closed, renew)
		if err == nil {
			r.proposed(len(closed), renew, began)
			continue
		}
		if r.halve(err) {
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

// next is what is to be proposed now, or how long there is nothing.
func (r *Renewer) next(now time.Time) (closed []int64, renew bool, sleep time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sleep = forever
	waiting := r.later[:0]
	for _, c := range r.later {
		if left := c.at.Sub(now); left > 0 {
			waiting = append(waiting, c)
			sleep = min(sleep, left)
		} else {
			r.closed = append(r.closed, c.conn)
		}
	}
	if r.later = waiting; len(waiting) == 0 {
		r.later = nil
	}
	// The renewer alone takes from the front of closed, once the request is through.
	closed = r.closed[:min(len(r.closed), r.together)]
	if shortest, some := r.sessions.Min(); some {
		left := r.renewed.Add(renewAfter(shortest.lease)).Sub(now)
		renew = left <= 0
		sleep = min(sleep, left)
	}
	return closed, renew, sleep
}

// halve has fewer connections in the next request, if the last one was refused, and reports whether that
// may help.
func (r *Renewer) halve(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if down := new(protocol.Error); errors.As(err, &down) || r.together == 1 {
		return false
	}
	r.together /= 2
	return true
}

// proposed notes that a request was applied.
func (r *Renewer) proposed(closed int, renew bool, began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.together = closedTogether
	if r.closed = r.closed[closed:]; len(r.closed) == 0 {
		r.closed = nil
	}
	if renew {
		r.renewed = began
	}
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
	if c := r.clients[s.conn]; c != nil && !c.cut {
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
