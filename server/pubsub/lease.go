package pubsub

import (
	"context"
	"sync"
	"time"
)

// renewEvery is the interval of renewals of the lease while there are subscriptions. The lease is longer than an
// election and some renewals.
const renewEvery = time.Second

const whyLease = "the node has lost the cluster"

// lease is the lease of a node's subscriptions. While it lasts, all nodes count them. When it ends, they end: a node
// that is partitioned has no subscribers by the time that the others count without it.
type lease struct {
	// renew renews the lease with the leader. It is nil in a hub whose subscriptions no other node counts.
	renew func() (until time.Time, err error)
	turn  chan struct{} // held by the goroutine that renews

	mu     sync.Mutex
	until  time.Time
	expiry *time.Timer
	kept   bool // a timer renews the lease
}

// OnLease gives the subscriptions a lease. renew must be safe for concurrent use. OnLease must be called before there
// are clients.
func (h *Hub) OnLease(renew func() (until time.Time, err error)) { h.lease.renew = renew }

// Acquire waits for the lease. A client needs it before it subscribes.
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

// Check reports whether the other nodes count the client's subscriptions. If they do not, since the lease has ended, it
// closes the connection. It must be called before the subscriptions are confirmed to the client.
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

// lasts reports whether the lease lasts longer than this.
func (l *lease) lasts(longer time.Duration) bool {
	if l.renew == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Add(longer).Before(l.until)
}

// keep renews the lease at intervals until there are no subscriptions.
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

// renew renews the lease. If it has ended meanwhile, the subscriptions end first.
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
