package parking

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// Cluster is what a lot needs of the node.
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

// Lot is the clients of this node that wait, by their tickets. Create it with [New].
type Lot struct {
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
	// leaving are those that the cluster is to forget. renounced: the cluster is to forget former lives
	// of this node.
	leaving   []departure
	renounced bool
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
	give func(protocol.Value)
	// number is the number of the batch that parked the client, 0 until that is known.
	number uint64
	// restored is the lot's count when the client entered.
	restored uint64
	places   int
}

// departure is a client on the way out of the cluster's queues, in which it has so many places at most.
type departure struct {
	ticket uint64
	places int
}

// New returns an empty lot.
func New(c Cluster) *Lot {
	return &Lot{cluster: c, wake: make(chan struct{}, 1), clients: make(map[uint64]client), gone: make(map[uint64]client), together: leaveTogether}
}

// Enter gives a ticket to a client whose command may wait in so many queues at most. give is called once at most, by
// any goroutine, and must be quick.
func (l *Lot) Enter(places int, give func(protocol.Value)) (ticket uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tickets++
	l.clients[l.tickets] = client{give: give, restored: l.restored, places: places}
	l.subscribe(true)
	return l.tickets
}

func (l *Lot) subscribe(yes bool) {
	if l.subscribed != yes {
		l.subscribed = yes
		l.cluster.SubscribeCommits(yes)
	}
}

// UnsubscribeIdle ends the subscription if no client waits, and reports whether the subscription goes on. The next
// client subscribes again. UnsubscribeIdle is called every second.
func (l *Lot) UnsubscribeIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.clients) == 0 {
		l.subscribe(false)
	}
	return l.subscribed
}

// take removes a client, and reports whether the client was there.
func (l *Lot) take(ticket uint64) (c client, there bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, there = l.clients[ticket]
	delete(l.clients, ticket)
	return c, there
}

// Forget ends a wait that did not begin: the command was served at once, or surely not applied. It reports whether
// the client was told nothing, and will be told nothing.
func (l *Lot) Forget(ticket uint64) (untold bool) {
	_, untold = l.take(ticket)
	return untold
}

// Parked notes that the batch with that number has parked the client. Replies are lost in snapshots alone: those that
// came while the command was under way are looked at here, later ones by Restored.
func (l *Lot) Parked(ticket, number uint64) {
	l.mu.Lock()
	c, there := l.clients[ticket]
	if there {
		c.number = number
		l.clients[ticket] = c
	}
	lost := there && c.restored != l.restored
	l.mu.Unlock()
	if lost {
		l.check(ticket, number)
	}
}

// check tells a client whose reply was lost that the outcome is uncertain: the state has the batch, but no
// waiter. Woken is called before the state says so, thus a client that is still there was never told.
func (l *Lot) check(ticket, number uint64) {
	if !l.cluster.Applied(number) || l.cluster.Waits(ticket) {
		return
	}
	l.Woken(ticket, protocol.ErrUncertain.Value())
}

// Woken tells a client the reply, and reports whether the client is still there. A client that has left, and
// that the cluster has not forgotten yet, is told as well, since the reply may be a lock to be given back.
func (l *Lot) Woken(ticket uint64, reply protocol.Value) bool {
	c, there := l.take(ticket)
	if !there {
		c = l.takeGone(ticket)
	}
	if c.give != nil {
		c.give(reply)
	}
	return there
}

func (l *Lot) takeGone(ticket uint64) client {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.gone[ticket]
	delete(l.gone, ticket)
	return c
}

// GiveBack has the cluster take locks back whose client had gone before it was told.
func (l *Lot) GiveBack(holds ...protocol.Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = append(l.holds, holds...)
	l.poke()
}

// Restored is called after the state was replaced by a snapshot's.
func (l *Lot) Restored() {
	l.mu.Lock()
	l.restored++
	numbers := make(map[uint64]uint64, len(l.clients))
	for ticket, c := range l.clients {
		if c.number != 0 {
			numbers[ticket] = c.number
		}
	}
	l.mu.Unlock()
	for ticket, number := range numbers {
		l.check(ticket, number)
	}
}

// Leave notes that a client does not wait any more. If the client was told a reply, nothing happens.
func (l *Lot) Leave(ticket uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, there := l.clients[ticket]
	if !there {
		return
	}
	delete(l.clients, ticket)
	l.gone[ticket] = c
	l.leaving = append(l.leaving, departure{ticket, c.places})
	l.poke()
}

// LeaveAll tells all clients that were parked the reply, and has the cluster forget them.
func (l *Lot) LeaveAll(reply protocol.Value) {
	l.mu.Lock()
	var gone []client
	for ticket, c := range l.clients {
		if c.number != 0 {
			delete(l.clients, ticket)
			gone = append(gone, c)
			l.leaving = append(l.leaving, departure{ticket, c.places})
		}
	}
	l.poke()
	l.mu.Unlock()
	for _, c := range gone {
		c.give(reply)
	}
}

// Renounce has the cluster forget the waiters of former lives of this node: any batch of this life does.
func (l *Lot) Renounce() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renounced = true
	l.poke()
}

// Len is the number of clients that wait, or are about to.
func (l *Lot) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.clients)
}

func (l *Lot) poke() {
	select {
	case l.wake <- struct{}{}:
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
func (l *Lot) Run(ctx context.Context) error {
	for {
		select {
		case <-l.wake:
		case <-ctx.Done():
			return nil
		}
		for l.leaveSome() {
			waits := l.drain()
			err := l.cluster.Propose(l.request())
			if err == nil {
				l.left()
				continue
			}
			l.halve(err)
			if errors.Is(err, protocol.ErrNoLeader) || errors.Is(err, protocol.ErrUncertain) {
				l.giveUp(waits)
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
func (l *Lot) halve(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if down := new(protocol.Error); errors.As(err, &down) {
		return
	}
	l.together = max(1, l.together/2)
}

// leaveSome reports whether something is to be proposed.
func (l *Lot) leaveSome() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	some := len(l.leaving)+len(l.holds) > 0 || l.renounced
	if !some && l.empty != nil {
		close(l.empty)
		l.empty = nil
	}
	return some
}

// drain is the channel for callers that wait for an empty lot, nil: no caller waits.
func (l *Lot) drain() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.empty
}

// giveUp ends Drained: nothing can leave now. waits is what drain said before the try that failed.
func (l *Lot) giveUp(waits chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if waits != nil && l.empty == waits {
		close(l.empty)
		l.empty = nil
	}
}

// request is for the tickets that leave next.
func (l *Lot) request() (body []byte, count int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.askedHolds = min(len(l.holds), l.together)
	tickets := l.nextTickets()
	l.askedTickets = len(tickets)
	body = protocol.AppendUnblock(nil, protocol.LeaveGone, tickets...)
	for _, h := range l.holds[:l.askedHolds] {
		body = protocol.AppendGiveBack(body, h)
	}
	return body, 1 + l.askedHolds
}

// nextTickets are the tickets of one request: one at least, if any are left.
func (l *Lot) nextTickets() (tickets []uint64) {
	places := 0
	for _, d := range l.leaving[:min(len(l.leaving), l.together)] {
		if places += d.places; places > leavePlaces && len(tickets) > 0 {
			break
		}
		tickets = append(tickets, d.ticket)
	}
	return tickets
}

// left notes that the last request was applied.
func (l *Lot) left() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renounced = false
	for _, d := range l.leaving[:l.askedTickets] {
		delete(l.gone, d.ticket)
	}
	l.together = leaveTogether
	l.leaving = slices.Delete(l.leaving, 0, l.askedTickets) // others were appended at most
	if len(l.leaving) == 0 {
		l.leaving = nil
	}
	if l.holds = slices.Delete(l.holds, 0, l.askedHolds); len(l.holds) == 0 {
		l.holds = nil
	}
}

// Drained waits until nothing leaves any more, or a try found no leader for as long as a command takes, or ctx
// ends. Where all nodes stop at once, no leader comes.
func (l *Lot) Drained(ctx context.Context) {
	l.mu.Lock()
	if len(l.leaving)+len(l.holds) == 0 {
		l.mu.Unlock()
		return
	}
	if l.empty == nil {
		l.empty = make(chan struct{})
	}
	empty := l.empty
	l.mu.Unlock()
	select {
	case <-empty:
	case <-ctx.Done():
	}
}
