package parking

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// Cluster is what a registry needs of the node.
type Cluster struct {
	// Propose has requests of this node applied, by this node's copy of the state, too: count requests in a
	// batch's body. An error means that they may not have been: a *protocol.Error for reasons that are not
	// the requests', such as their number.
	Propose func(body []byte, count int) error
	// Waits reports whether the state has a waiter of this node with the ticket.
	Waits func(ticket uint64) bool
	// Applied reports whether the state has the batch of this node with that number.
	Applied func(number uint64) bool
	// SubscribeCommits sets whether this node wants each commit at once: clients wait, or waited a moment ago.
	// SubscribeCommits must be quick.
	SubscribeCommits func(bool)
}

// Registry has the clients of this node that wait, by their tickets. Create it with [New].
type Registry struct {
	cluster Cluster
	wake    chan struct{}

	mu      sync.Mutex
	tickets uint64 // given out
	clients map[uint64]client
	// restored counts the snapshots that took the place of the state.
	restored uint64
	// gone are clients that have left, until the cluster has forgotten them: one may be served before that.
	gone map[uint64]client
	// holds are locks to be given back.
	holds []protocol.Hold
	// leaving are the waiters that the cluster has to drop. dropPrevious: and all waiters of previous incarnations of
	// this node.
	leaving      []departure
	dropPrevious bool
	// askedTickets and askedHolds are how many of leaving and of holds are in the request under way.
	askedTickets, askedHolds int
	// together is how many leave in one request.
	together int
	// subscribed is the last argument of SubscribeCommits.
	subscribed bool
	// empty is closed when nothing leaves any more, or nothing can; nil while no caller waits for this.
	empty chan struct{}
}

// client is a client that waits.
type client struct {
	deliver func(protocol.Value)
	// number is the number of the batch that parked the client, 0 until that is known.
	number uint64
	// restored is the registry's count when the client entered.
	restored uint64
	places   int
}

// departure is a client on the way out of the cluster's queues, in which it has so many places at most.
type departure struct {
	ticket uint64
	places int
}

// New returns an empty registry.
func New(c Cluster) *Registry {
	return &Registry{
		cluster: c, wake: make(chan struct{}, 1), clients: make(map[uint64]client),
		gone: make(map[uint64]client), together: leaveTogether,
	}
}

// Enter gives a ticket to a client whose command may wait in so many queues at most. deliver is called once at most,
// by any goroutine, and must be quick.
func (r *Registry) Enter(places int, deliver func(protocol.Value)) (ticket uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tickets++
	r.clients[r.tickets] = client{deliver: deliver, restored: r.restored, places: places}
	r.subscribe(true)
	return r.tickets
}

func (r *Registry) subscribe(yes bool) {
	if r.subscribed != yes {
		r.subscribed = yes
		r.cluster.SubscribeCommits(yes)
	}
}

// UnsubscribeIdle ends the subscription if no client waits, and reports whether the subscription goes on. The next
// client subscribes again. UnsubscribeIdle is called every second.
func (r *Registry) UnsubscribeIdle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.clients) == 0 {
		r.subscribe(false)
	}
	return r.subscribed
}

// take removes a client, and reports whether the client was there.
func (r *Registry) take(ticket uint64) (c client, there bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, there = r.clients[ticket]
	delete(r.clients, ticket)
	return c, there
}

// Forget ends a wait that did not begin: the command was served at once, or surely not applied. It returns true if no
// reply was or will be delivered.
func (r *Registry) Forget(ticket uint64) (undelivered bool) {
	_, undelivered = r.take(ticket)
	return undelivered
}

// Parked notes that the batch with that number has parked the client. Replies are lost in snapshots alone: those that
// came while the command was under way are looked at here, later ones by Restored.
func (r *Registry) Parked(ticket, number uint64) {
	r.mu.Lock()
	c, there := r.clients[ticket]
	if there {
		c.number = number
		r.clients[ticket] = c
	}
	lost := there && c.restored != r.restored
	r.mu.Unlock()
	if lost {
		r.check(ticket, number)
	}
}

// check delivers ErrUncertain to a client whose reply was lost: the state has the batch, but no waiter. Woken is called
// before the state has the batch, thus a client that is still there got no reply.
func (r *Registry) check(ticket, number uint64) {
	if !r.cluster.Applied(number) || r.cluster.Waits(ticket) {
		return
	}
	r.Woken(ticket, protocol.ErrUncertain.Value())
}

// Woken delivers the reply, and reports whether the client is still there. A reply is also delivered for a client that
// has left while the cluster still has its waiter: the reply may be a lock to be given back.
func (r *Registry) Woken(ticket uint64, reply protocol.Value) bool {
	c, there := r.take(ticket)
	if !there {
		c = r.takeGone(ticket)
	}
	if c.deliver != nil {
		c.deliver(reply)
	}
	return there
}

func (r *Registry) takeGone(ticket uint64) client {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.gone[ticket]
	delete(r.gone, ticket)
	return c
}

// GiveBack releases locks that were granted to clients which had gone before the delivery.
func (r *Registry) GiveBack(holds ...protocol.Hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holds = append(r.holds, holds...)
	r.poke()
}

// Restored is called after the state was replaced by a snapshot's.
func (r *Registry) Restored() {
	r.mu.Lock()
	r.restored++
	numbers := make(map[uint64]uint64, len(r.clients))
	for ticket, c := range r.clients {
		if c.number != 0 {
			numbers[ticket] = c.number
		}
	}
	r.mu.Unlock()
	for ticket, number := range numbers {
		r.check(ticket, number)
	}
}

// Leave notes that a client does not wait any more. If a reply was delivered, nothing happens.
func (r *Registry) Leave(ticket uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, there := r.clients[ticket]
	if !there {
		return
	}
	delete(r.clients, ticket)
	r.gone[ticket] = c
	r.leaving = append(r.leaving, departure{ticket, c.places})
	r.poke()
}

// LeaveAll delivers the reply to all parked clients, and has the cluster drop their waiters.
func (r *Registry) LeaveAll(reply protocol.Value) {
	r.mu.Lock()
	var gone []client
	for ticket, c := range r.clients {
		if c.number != 0 {
			delete(r.clients, ticket)
			gone = append(gone, c)
			r.leaving = append(r.leaving, departure{ticket, c.places})
		}
	}
	r.poke()
	r.mu.Unlock()
	for _, c := range gone {
		c.deliver(reply)
	}
}

// DropPreviousIncarnations has the cluster drop the waiters of this node's previous incarnations, as any batch of the
// present one does.
func (r *Registry) DropPreviousIncarnations() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropPrevious = true
	r.poke()
}

// Len is the number of clients that wait, or are about to.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.clients)
}

func (r *Registry) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

const (
	// leaveTogether is the most tickets that leave in one request. leavePlaces is the most places in queues that these
	// tickets have together: a request is not cut, and others wait for it.
	leaveTogether = 1000
	leavePlaces   = 50 * 128
	// leaveAgain is the time between two tries.
	leaveAgain = 100 * time.Millisecond
)

// Run has the cluster forget tickets, until ctx ends. What comes meanwhile leaves together.
func (r *Registry) Run(ctx context.Context) error {
	for {
		select {
		case <-r.wake:
		case <-ctx.Done():
			return nil
		}
		for r.anythingLeaving() {
			waits := r.drain()
			err := r.cluster.Propose(r.request())
			if err == nil {
				r.applied()
				continue
			}
			r.halve(err)
			if errors.Is(err, protocol.ErrNoLeader) || errors.Is(err, protocol.ErrUncertain) {
				r.giveUp(waits)
			}
			select {
			case <-time.After(leaveAgain):
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// halve has fewer leave in the next request, if the last one was refused.
func (r *Registry) halve(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if down := new(protocol.Error); errors.As(err, &down) {
		return
	}
	r.together = max(1, r.together/2)
}

// anythingLeaving reports whether something is to be proposed.
func (r *Registry) anythingLeaving() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	some := len(r.leaving)+len(r.holds) > 0 || r.dropPrevious
	if !some && r.empty != nil {
		close(r.empty)
		r.empty = nil
	}
	return some
}

// drain is the channel for callers that wait for an empty registry; nil: no caller waits.
func (r *Registry) drain() chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.empty
}

// giveUp ends Drained: nothing can leave now. waits is what drain said before the try that failed.
func (r *Registry) giveUp(waits chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if waits != nil && r.empty == waits {
		close(r.empty)
		r.empty = nil
	}
}

// request is for the tickets that leave next.
func (r *Registry) request() (body []byte, count int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.askedHolds = min(len(r.holds), r.together)
	tickets := r.nextTickets()
	r.askedTickets = len(tickets)
	body = protocol.AppendUnblock(nil, protocol.LeaveGone, tickets...)
	for _, h := range r.holds[:r.askedHolds] {
		body = protocol.AppendGiveBack(body, h)
	}
	return body, 1 + r.askedHolds
}

// nextTickets are the tickets of one request: one at least, if any are left.
func (r *Registry) nextTickets() (tickets []uint64) {
	places := 0
	for _, d := range r.leaving[:min(len(r.leaving), r.together)] {
		if places += d.places; places > leavePlaces && len(tickets) > 0 {
			break
		}
		tickets = append(tickets, d.ticket)
	}
	return tickets
}

// applied notes that the last request was applied.
func (r *Registry) applied() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropPrevious = false
	for _, d := range r.leaving[:r.askedTickets] {
		delete(r.gone, d.ticket)
	}
	r.together = leaveTogether
	r.leaving = slices.Delete(r.leaving, 0, r.askedTickets) // others were appended at most
	if len(r.leaving) == 0 {
		r.leaving = nil
	}
	if r.holds = slices.Delete(r.holds, 0, r.askedHolds); len(r.holds) == 0 {
		r.holds = nil
	}
}

// Drained waits until nothing leaves any more, or a try found no leader for as long as a command takes, or ctx
// ends. Where all nodes stop at once, no leader comes.
func (r *Registry) Drained(ctx context.Context) {
	r.mu.Lock()
	if len(r.leaving)+len(r.holds) == 0 {
		r.mu.Unlock()
		return
	}
	if r.empty == nil {
		r.empty = make(chan struct{})
	}
	empty := r.empty
	r.mu.Unlock()
	select {
	case <-empty:
	case <-ctx.Done():
	}
}
