package sessions

import (
	"context"
	"sync"
)

// Cluster are the functions of the node that this package calls.
type Cluster struct {
	// Propose applies requests of this node to the cluster, and to this node's copy of the state: count requests in the
	// body of a batch. After an error they may have been applied or not: a *protocol.Error has a reason that is not the
	// requests', such as a missing leader; any other error is for their number or work.
	Propose func(body []byte, count int) error
	// Renew renews all sessions of this incarnation of the node. After an error they may have been renewed or not.
	Renew func() error
	// Waits reports whether the state has a waiter of this node with the ticket.
	Waits func(ticket uint64) bool
	// Applied reports whether the state of this node has the batch of this node with that number.
	Applied func(number uint64) bool
	// SubscribeWaiting sets whether this node wants notice of each commit because clients wait or waited a moment ago, and
	// SubscribeSessions because connections may lose a hold. Both must be quick.
	SubscribeWaiting, SubscribeSessions func(bool)
}

// Clients are the clients of this node that the cluster's state refers to. Create them with [New].
type Clients struct {
	Waiters    *Waiters
	Renewer    *Renewer
	departures *departures
}

// New returns an empty registry.
func New(c Cluster) *Clients {
	d := newDepartures(c.Propose)
	return &Clients{
		Waiters: &Waiters{cluster: &c, departures: d, clients: make(map[uint64]waiter)}, Renewer: newRenewer(&c, d),
		departures: d,
	}
}

// Run removes departed clients from the cluster's state and renews sessions, until ctx ends.
func (c *Clients) Run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { c.departures.run(ctx) })
	all.Go(func() { c.Renewer.runCutter(ctx) })
	c.Renewer.run(ctx)
	all.Wait()
	return nil
}

// Restored is called after a snapshot replaced the state. each calls its argument for every session that the new state
// attaches to a connection of this node.
func (c *Clients) Restored(each func(func(conn int64, id uint64, leaseMillis int64))) {
	c.Renewer.restored(each)
	c.Waiters.stateRestored()
}

// Drained waits until no departure is pending, until an attempt found no leader for the time of a command, or until ctx
// ends. If all nodes stop at once, no leader comes.
func (c *Clients) Drained(ctx context.Context) { c.departures.wait(ctx) }
