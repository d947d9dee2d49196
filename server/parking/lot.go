package parking

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// Cluster is what a lot needs of the node.
type Cluster struct {
	// Propose has requests of this node applied: count requests in a batch's body. An error means that
	// they may not have been.
	Propose func(body []byte, count int) error
	// Waits reports whether the state has a waiter of this node with the ticket.
	Waits func(ticket uint64) bool
	// Applied reports whether the state has the batch of this node with that number.
	Applied func(number uint64) bool
	// Attend says whether clients wait, or waited a moment ago. It must be quick.
	Attend func(bool)
}

// Lot is the clients of this node that wait, by their tickets. Create it with [New].
type Lot struct {
	cluster Cluster
	wake    chan struct{}

	mu      sync.Mutex
	tickets uint64 // given out
	clients map[uint64]*client
	// leaving are tickets that the cluster is to forget. renounced: the cluster is to forget former lives
	// of this node.
	leaving   []uint64
	renounced bool
	asked     int // how many of leaving are in the request under way
	// attends is what Attend was told last.
	attends bool
	// empty is closed when nothing leaves any more; nil while no caller waits for this.
	empty chan struct{}
}

// client is a client that waits.
type client struct {
	give func(protocol.Value)
	// number is the number of the batch that parked the client, 0 until that is known.
	number uint64
}

// New returns an empty lot.
func New(c Cluster) *Lot {
	return &Lot{cluster: c, wake: make(chan struct{}, 1), clients: make(map[uint64]*client)}
}

// Enter gives a ticket to a client whose command may wait. give is called once at most, by any goroutine,
// and must be quick.
func (l *Lot) Enter(give func(protocol.Value)) (ticket uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tickets++
	l.clients[l.tickets] = &client{give: give}
	l.attend(true)
	return l.tickets
}

func (l *Lot) attend(yes bool) {
	if l.attends != yes {
		l.attends = yes
		l.cluster.Attend(yes)
	}
}

// Rest is called now and then: it ends attending if no client waits.
func (l *Lot) Rest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.clients) == 0 {
		l.attend(false)
	}
}

// take removes a client, and returns nil if the client is not there.
func (l *Lot) take(ticket uint64) *client {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.clients[ticket]
	delete(l.clients, ticket)
	return c
}

// Forget ends a wait that did not begin: the command was served at once, or surely not applied.
func (l *Lot) Forget(ticket uint64) { l.take(ticket) }

// Parked notes that the batch with that number has parked the client.
func (l *Lot) Parked(ticket, number uint64) {
	l.mu.Lock()
	if c := l.clients[ticket]; c != nil {
		c.number = number
	}
	l.mu.Unlock()
	l.check(ticket, number)
}

// check tells a client whose reply was lost that the outcome is uncertain: the state has the batch, but no
// waiter. Woken is called before the state says so, thus a client that is still there was never told.
func (l *Lot) check(ticket, number uint64) {
	if !l.cluster.Applied(number) || l.cluster.Waits(ticket) {
		return
	}
	l.Woken(ticket, protocol.ErrUncertain.Value())
}

// Woken tells a client the reply, and reports whether the client is still there.
func (l *Lot) Woken(ticket uint64, reply protocol.Value) bool {
	c := l.take(ticket)
	if c == nil {
		return false
	}
	c.give(reply)
	return true
}

// Restored is called after the state was replaced by a snapshot's.
func (l *Lot) Restored() {
	l.mu.Lock()
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
	if l.clients[ticket] == nil {
		return
	}
	delete(l.clients, ticket)
	l.leaving = append(l.leaving, ticket)
	l.poke()
}

// LeaveAll tells all clients that were parked the reply, and has the cluster forget them.
func (l *Lot) LeaveAll(reply protocol.Value) {
	l.mu.Lock()
	var gone []*client
	for ticket, c := range l.clients {
		if c.number != 0 {
			delete(l.clients, ticket)
			gone = append(gone, c)
			l.leaving = append(l.leaving, ticket)
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
	// leaveTogether is the number of tickets that leave in one request.
	leaveTogether = 1000
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
			if l.cluster.Propose(l.request()) == nil {
				l.left()
				continue
			}
			select {
			case <-time.After(leaveAgain):
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// leaveSome reports whether something is to be proposed.
func (l *Lot) leaveSome() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	some := len(l.leaving) > 0 || l.renounced
	if !some && l.empty != nil {
		close(l.empty)
		l.empty = nil
	}
	return some
}

// request is for the tickets that leave next.
func (l *Lot) request() (body []byte, count int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = min(len(l.leaving), leaveTogether)
	return protocol.AppendUnblock(nil, protocol.LeaveGone, l.leaving[:l.asked]...), 1
}

// left notes that the last request was applied.
func (l *Lot) left() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renounced = false
	l.leaving = slices.Delete(l.leaving, 0, l.asked) // others were appended at most
	if len(l.leaving) == 0 {
		l.leaving = nil
	}
}

// Drained waits until nothing leaves any more, or ctx ends.
func (l *Lot) Drained(ctx context.Context) {
	l.mu.Lock()
	if len(l.leaving) == 0 {
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
