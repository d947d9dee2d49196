package pubsub

import (
	"context"
	"sync"
	"time"
)

// renewEvery is the time between two renewals of the lease while there are subscriptions. The lease outlasts an
// election and some renewals.
const renewEvery = time.Second

const whyLease = "the node has lost the cluster"

// lease is what the subscriptions of a node live by: while it lasts, they are counted on every node, and when it ends
// they end. A node that is cut off so has no subscribers by the time that others count without it.
type lease struct {
	// renew renews it with the leader. The hub of subscriptions that no other node counts has none.
	renew func() (until time.Time, err error)
	turn  chan struct{} // held by the one who renews

	mu     sync.Mutex
	until  time.Time
	expiry *time.Timer
	kept   bool // a timer renews it
}

// OnLease has the subscriptions live by a lease. renew must be safe for many goroutines. OnLease must be called before
// there are clients.
func (h *Hub) OnLease(renew func() (until time.Time, err error)) { h.lease.renew = renew }

// Acquire waits for the lease, which a client needs before it subscribes.
func (h *Hub) Acquire(ctx context.Context) error {
	if h.lease.lasts(2 * renewEvery) {
		return nil
	}
	select {
	case h.lease.turn <- struct{}{}:
		defer func() { <-h.lease.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if h.lease.lasts(2 * renewEvery) {
		return nil
	}
	return h.renew()
}

// Check reports whether the client's subscriptions are counted, and cuts the client off if they are not: the lease has
// ended since they began. It must be called before the client is told of them.
func (c *Client) Check() bool {
	h, l := c.hub, &c.hub.lease
	if !l.lasts(0) {
		c.to.Cut(whyLease)
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renew != nil && !l.kept && h.subscriptions.Load() > 0 {
		l.kept = true
		time.AfterFunc(renewEvery, h.keep)
	}
	return true
}

// lasts reports whether the lease lasts so much longer.
func (l *lease) lasts(longer time.Duration) bool {
	if l.renew == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Add(longer).Before(l.until)
}

// keep renews the lease, and again after a while, until there are no subscriptions.
func (h *Hub) keep() {
	l := &h.lease
	l.mu.Lock()
	l.kept = h.subscriptions.Load() > 0
	kept := l.kept
	l.mu.Unlock()
	if !kept {
		return
	}
	l.turn <- struct{}{}
	_ = h.renew() // it is tried again
	<-l.turn
	time.AfterFunc(renewEvery, h.keep)
}

// renew renews the lease. A lease that has ended meanwhile ends the subscriptions before there is another.
func (h *Hub) renew() error {
	l := &h.lease
	until, err := l.renew()
	if err != nil {
		return err
	}
	h.expire()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = until
	if l.expiry == nil {
		l.expiry = time.AfterFunc(time.Until(until), h.expire)
	} else {
		l.expiry.Reset(time.Until(until))
	}
	return nil
}

// expire closes the connections of all subscribers if the lease has ended.
func (h *Hub) expire() {
	if !h.lease.lasts(0) {
		h.cutAll(whyLease, func(*Client) bool { return true })
	}
}
