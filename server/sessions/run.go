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

// Run keeps sessions until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { k.cutLate(ctx) })
	k.renew(ctx)
	all.Wait()
	return nil
}

// renew proposes what is to be proposed, one request at a time.
func (k *Keeper) renew(ctx context.Context) {
	timer := time.NewTimer(forever)
	defer timer.Stop()
	for {
		k.settleExpected()
		closed, renew, sleep := k.next(time.Now())
		if len(closed) == 0 && !renew {
			set(timer, sleep)
			select {
			case <-timer.C:
			case <-k.wakeRenewer:
			case <-ctx.Done():
				return
			}
			continue
		}
		began := time.Now()
		err := k.cluster.Propose(closed, renew)
		if err == nil {
			k.proposed(len(closed), renew, began)
			continue
		}
		if k.halve(err) {
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
func (k *Keeper) next(now time.Time) (closed []int64, renew bool, sleep time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sleep = forever
	waiting := k.later[:0]
	for _, c := range k.later {
		if left := c.at.Sub(now); left > 0 {
			waiting = append(waiting, c)
			sleep = min(sleep, left)
		} else {
			k.closed = append(k.closed, c.conn)
		}
	}
	if k.later = waiting; len(waiting) == 0 {
		k.later = nil
	}
	// The renewer alone takes from the front of closed, once the request is through.
	closed = k.closed[:min(len(k.closed), k.together)]
	if shortest, some := k.sessions.Min(); some {
		left := k.renewed.Add(renewAfter(shortest.lease)).Sub(now)
		renew = left <= 0
		sleep = min(sleep, left)
	}
	return closed, renew, sleep
}

// halve has fewer connections in the next request, if the last one was refused, and reports whether that
// may help.
func (k *Keeper) halve(err error) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if down := new(protocol.Error); errors.As(err, &down) || k.together == 1 {
		return false
	}
	k.together /= 2
	return true
}

// proposed notes that a request was applied.
func (k *Keeper) proposed(closed int, renew bool, began time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.together = closedTogether
	if k.closed = k.closed[closed:]; len(k.closed) == 0 {
		k.closed = nil
	}
	if renew {
		k.renewed = began
	}
}

// settleExpected forgets expected sessions once this node's log has told what became of them.
func (k *Keeper) settleExpected() {
	k.mu.Lock()
	some := slices.Collect(maps.Keys(k.expected))
	k.mu.Unlock()
	for _, s := range some {
		if k.cluster.Applied(s.number) {
			k.settled(s)
		}
	}
}

func (k *Keeper) settled(s *session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.clients[s.conn]; c != nil && !c.cut {
		k.sessions.Delete(s)
		k.forget(c, s)
	}
}

// cutLate closes connections whose sessions were not renewed in time.
func (k *Keeper) cutLate(ctx context.Context) {
	timer := time.NewTimer(forever)
	defer timer.Stop()
	for {
		now := time.Now()
		set(timer, min(k.look(now), k.cutSilent(now)))
		select {
		case <-timer.C:
		case <-k.wakeCutter:
		case <-ctx.Done():
			return
		}
	}
}

// whyCut is logged with the connection.
const whyCut = "its session could not be renewed in time"

// look cuts the connections that are late, and returns how long none will be.
func (k *Keeper) look(now time.Time) (sleep time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sleep = forever
	var late []int64
	k.sessions.Scan(func(s *session) bool {
		left := k.renewed.Add(trustedFor(s.lease)).Sub(now)
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
		k.cutOff(conn)
	}
	return sleep
}

// cutOff closes a connection. The caller holds k.mu.
func (k *Keeper) cutOff(conn int64) {
	c := k.clients[conn]
	if c.cut {
		return
	}
	k.abandon(c, 0)
	k.cuts++
	c.to.Cut(whyCut)
}
