package sessions

import (
	"sync"

	"github.com/holdfast/holdfast/protocol"
)

// Waiters are the clients of this node that wait for a reply, by ticket.
type Waiters struct {
	cluster    *Cluster
	departures *departures

	mu      sync.Mutex
	tickets uint64 // given out
	clients map[uint64]waiter
	// restored counts the snapshots that replaced the state.
	restored uint64
	// subscribed is the last argument of SubscribeWaiting.
	subscribed bool
}

// waiter is a client that waits for a reply.
type waiter struct {
	deliver func(protocol.Value)
	// number is the number of the batch that parked the client, 0 if unknown.
	number uint64
	// restored is the value of Waiters.restored when the client entered.
	restored uint64
	places   int
}

// Enter returns a ticket for a client whose command may wait in at most so many queues. deliver is called at most once,
// by any goroutine, and must be quick.
func (w *Waiters) Enter(places int, deliver func(protocol.Value)) (ticket uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tickets++
	w.clients[w.tickets] = waiter{deliver: deliver, restored: w.restored, places: places}
	w.subscribe(true)
	return w.tickets
}

func (w *Waiters) subscribe(yes bool) {
	if w.subscribed != yes {
		w.subscribed = yes
		w.cluster.SubscribeWaiting(yes)
	}
}

// UnsubscribeIdle ends the subscription if no client waits, and reports whether the subscription continues. The next
// client subscribes again. The caller calls it every second.
func (w *Waiters) UnsubscribeIdle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.clients) == 0 {
		w.subscribe(false)
	}
	return w.subscribed
}

// take removes and returns a client.
func (w *Waiters) take(ticket uint64) (c waiter, there bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, there = w.clients[ticket]
	delete(w.clients, ticket)
	return c, there
}

// Forget removes a client that does not wait: its command was served at once, or surely not applied. undelivered
// reports that no reply was or will be delivered.
func (w *Waiters) Forget(ticket uint64) (undelivered bool) {
	_, undelivered = w.take(ticket)
	return undelivered
}

// Parked records that the batch of that number has parked the client. Replies are lost only with entries that a
// snapshot replaces: Parked checks for snapshots since the client entered, stateRestored for later ones.
func (w *Waiters) Parked(ticket, number uint64) {
	w.mu.Lock()
	c, there := w.clients[ticket]
	if there {
		c.number = number
		w.clients[ticket] = c
	}
	lost := there && c.restored != w.restored
	w.mu.Unlock()
	if lost {
		w.check(ticket, number)
	}
}

// check delivers ErrUncertain to a client whose reply was lost: the state has the batch, but no waiter. Woken is called
// before the state has the batch, so that a client that is still here got no reply.
func (w *Waiters) check(ticket, number uint64) {
	if !w.cluster.Applied(number) || w.cluster.Waits(ticket) {
		return
	}
	w.Woken(ticket, protocol.ErrUncertain.Value())
}

// Woken delivers the reply, and reports whether the client is still here. A client that has left gets the reply too, as
// long as the cluster has its waiter: the reply may be a lock to be returned.
func (w *Waiters) Woken(ticket uint64, reply protocol.Value) bool {
	c, there := w.take(ticket)
	if !there {
		c.deliver = w.departures.takeDeparted(ticket)
	}
	if c.deliver != nil {
		c.deliver(reply)
	}
	return there
}

// GiveBack releases locks that were granted to clients which left before the delivery.
func (w *Waiters) GiveBack(holds ...protocol.Hold) {
	w.departures.add(func(d *departures) { d.holds = append(d.holds, holds...) })
}

// stateRestored is [Clients.Restored].
func (w *Waiters) stateRestored() {
	w.mu.Lock()
	w.restored++
	numbers := make(map[uint64]uint64, len(w.clients))
	for ticket, c := range w.clients {
		if c.number != 0 {
			numbers[ticket] = c.number
		}
	}
	w.mu.Unlock()
	for ticket, number := range numbers {
		w.check(ticket, number)
	}
}

// Leave removes a client that no longer waits, and its waiter from the cluster. After the delivery of a reply it does
// nothing.
func (w *Waiters) Leave(ticket uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, there := w.clients[ticket]
	if !there {
		return
	}
	delete(w.clients, ticket)
	w.departures.add(func(d *departures) {
		d.departed[ticket] = c.deliver
		d.waiters = append(d.waiters, departure{ticket, c.places})
	})
}

// LeaveAll delivers the reply to all parked clients, and removes their waiters from the cluster.
func (w *Waiters) LeaveAll(reply protocol.Value) {
	w.mu.Lock()
	var parked []waiter
	var leave []departure
	for ticket, c := range w.clients {
		if c.number != 0 {
			delete(w.clients, ticket)
			parked = append(parked, c)
			leave = append(leave, departure{ticket, c.places})
		}
	}
	w.mu.Unlock()
	w.departures.add(func(d *departures) { d.waiters = append(d.waiters, leave...) })
	for _, c := range parked {
		c.deliver(reply)
	}
}

// DropPreviousIncarnations removes the waiters of this node's previous incarnations, as any batch of the present one
// does.
func (w *Waiters) DropPreviousIncarnations() {
	w.departures.add(func(d *departures) { d.dropPrevious = true })
}

// Len returns the number of clients that wait, or are about to.
func (w *Waiters) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.clients)
}
