package sessions

import (
	"sync"

	"github.com/holdfast/holdfast/protocol"
)

// Waiters are the clients of this node that wait, by their tickets.
type Waiters struct {
	cluster    *Cluster
	departures *departures

	mu      sync.Mutex
	tickets uint64 // given out
	clients map[uint64]waiter
	// restored counts the snapshots that took the place of the state.
	restored uint64
	// subscribed is the last argument of SubscribeWaiting.
	subscribed bool
}

// waiter is a client that waits.
type waiter struct {
	deliver func(protocol.Value)
	// number is the number of the batch that parked the client, 0 until that is known.
	number uint64
	// restored is the count of snapshots when the client entered.
	restored uint64
	places   int
}

// Enter gives a ticket to a client whose command may wait in so many queues at most. deliver is called once at most,
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

// UnsubscribeIdle ends the subscription if no client waits, and reports whether the subscription goes on. The next
// client subscribes again. UnsubscribeIdle is called every second.
func (w *Waiters) UnsubscribeIdle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.clients) == 0 {
		w.subscribe(false)
	}
	return w.subscribed
}

// take removes a client, and reports whether the client was there.
func (w *Waiters) take(ticket uint64) (c waiter, there bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, there = w.clients[ticket]
	delete(w.clients, ticket)
	return c, there
}

// Forget ends a wait that did not begin: the command was served at once, or surely not applied. It returns true if no
// reply was or will be delivered.
func (w *Waiters) Forget(ticket uint64) (undelivered bool) {
	_, undelivered = w.take(ticket)
	return undelivered
}

// Parked notes that the batch with that number has parked the client. Replies are lost in snapshots alone: those that
// came while the command was under way are looked at here, later ones by stateRestored.
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
// before the state has the batch, thus a client that is still there got no reply.
func (w *Waiters) check(ticket, number uint64) {
	if !w.cluster.Applied(number) || w.cluster.Waits(ticket) {
		return
	}
	w.Woken(ticket, protocol.ErrUncertain.Value())
}

// Woken delivers the reply, and reports whether the client is still there. A reply is also delivered for a client that
// has left while the cluster still has its waiter: the reply may be a lock to be given back.
func (w *Waiters) Woken(ticket uint64, reply protocol.Value) bool {
	c, there := w.take(ticket)
	if !there {
		c.deliver = w.departures.takeGone(ticket)
	}
	if c.deliver != nil {
		c.deliver(reply)
	}
	return there
}

// GiveBack releases locks that were granted to clients which had gone before the delivery.
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

// Leave notes that a client does not wait any more. If a reply was delivered, nothing happens.
func (w *Waiters) Leave(ticket uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, there := w.clients[ticket]
	if !there {
		return
	}
	delete(w.clients, ticket)
	w.departures.add(func(d *departures) {
		d.gone[ticket] = c.deliver
		d.waiters = append(d.waiters, departure{ticket, c.places})
	})
}

// LeaveAll delivers the reply to all parked clients, and has the cluster drop their waiters.
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

// DropPreviousIncarnations has the cluster drop the waiters of this node's previous incarnations, as any batch of the
// present one does.
func (w *Waiters) DropPreviousIncarnations() {
	w.departures.add(func(d *departures) { d.dropPrevious = true })
}

// Len is the number of clients that wait, or are about to.
func (w *Waiters) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.clients)
}
