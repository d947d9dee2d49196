package sessions

import (
	"context"
	"sync"
)

// Cluster is what the package needs of the node.
type Cluster struct {
	// Propose has requests of this node applied, by this node's copy of the state, too: count requests in a batch's
	// body. An error means that they may not have been: a *protocol.Error for reasons that are not the requests', such
	// as a missing leader; any other for their number or work.
	Propose func(body []byte, count int) error
	// Renew has all sessions of this incarnation of the node renewed. An error means that they may not have been.
	Renew func() error
	// Waits reports whether the state has a waiter of this node with the ticket.
	Waits func(ticket uint64) bool
	// Applied reports whether the state of this node has the batch of this node with that number.
	Applied func(number uint64) bool
	// SubscribeWaiting sets whether this node wants each commit at once since clients wait, or waited a moment ago.
	// SubscribeSessions does since there are connections that may lose a hold. Both must be quick.
	SubscribeWaiting, SubscribeSessions func(bool)
}

// Clients are the clients of this node that the cluster knows. Create them with [New].
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

// Run has the cluster forget those who have left, and renews sessions, until ctx ends.
func (c *Clients) Run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { c.departures.run(ctx) })
	all.Go(func() { c.Renewer.cutLate(ctx) })
	c.Renewer.run(ctx)
	all.Wait()
	return nil
}

// Restored is called after the state was replaced by a snapshot's. each calls back with all sessions that
// live with connections of this node then.
func (c *Clients) Restored(each func(func(conn int64, id uint64, leaseMillis int64))) {
	c.Renewer.restored(each)
	c.Waiters.stateRestored()
}

// Drained waits until nothing leaves any more, or a try found no leader for as long as a command takes, or ctx
// ends. Where all nodes stop at once, no leader comes.
func (c *Clients) Drained(ctx context.Context) { c.departures.wait(ctx) }
