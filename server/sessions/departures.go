package sessions

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

const (
	// maxLeaving is the most departures of each kind in one request. maxLeavingPlaces is the most places in queues of the
	// waiters in one request: a request is applied in one piece, and other commands wait for it.
	maxLeaving       = 1000
	maxLeavingPlaces = 50 * 128
	// leaveRetryInterval is the time between two attempts.
	leaveRetryInterval = 100 * time.Millisecond
)

// departures removes clients that have left this node from the cluster's state, by one batch at a time: waiters leave
// their queues, locks that were granted too late are returned, and the sessions of closed connections end. Departures
// that are added meanwhile go into the next batch.
type departures struct {
	propose func(body []byte, count int) error
	wake    chan struct{}

	mu sync.Mutex
	// waiters are to be removed from their queues. dropPrevious adds all waiters of previous incarnations of this node.
	waiters      []departure
	dropPrevious bool
	// departed has the reply functions of clients that have left, by ticket, until the cluster has removed their waiters:
	// a waiter may be granted before that.
	departed map[uint64]func(protocol.Value)
	// holds are locks to be returned.
	holds []protocol.Hold
	// conns are connections whose sessions are to be ended.
	conns []int64
	// inFlight is the number of each kind in the request under way.
	inFlight struct{ waiters, holds, conns int }
	// batchSize is the most of each kind in the next request.
	batchSize int
	// empty is closed once no departure is pending, or none can be applied; nil while no caller waits for that.
	empty chan struct{}
}

// departure is a waiter to be removed from at most so many places in queues.
type departure struct {
	ticket uint64
	places int
}

func newDepartures(propose func(body []byte, count int) error) *departures {
	return &departures{
		propose: propose, wake: make(chan struct{}, 1), departed: make(map[uint64]func(protocol.Value)), batchSize: maxLeaving,
	}
}

// add calls note under the lock, and wakes run.
func (d *departures) add(note func(*departures)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	note(d)
	wake(d.wake)
}

// addConn adds a closed connection that had sessions.
func (d *departures) addConn(conn int64) {
	d.add(func(d *departures) { d.conns = append(d.conns, conn) })
}

// takeDeparted removes and returns the reply function of a client that has left; nil if the cluster has removed its
// waiter.
func (d *departures) takeDeparted(ticket uint64) (deliver func(protocol.Value)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	deliver = d.departed[ticket]
	delete(d.departed, ticket)
	return deliver
}

// run proposes departures until ctx ends.
func (d *departures) run(ctx context.Context) {
	for {
		select {
		case <-d.wake:
		case <-ctx.Done():
			return
		}
		for d.hasWork() {
			drained := d.drained()
			err := d.propose(d.request())
			if err == nil {
				d.applied()
				continue
			}
			d.shrinkBatch(err)
			if errors.Is(err, protocol.ErrNoLeader) || errors.Is(err, protocol.ErrUncertain) {
				d.abortWait(drained)
			}
			select {
			case <-time.After(leaveRetryInterval):
			case <-ctx.Done():
				return
			}
		}
	}
}

// hasWork reports whether a departure is pending, and ends all waits if not.
func (d *departures) hasWork() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count() > 0 || d.dropPrevious {
		return true
	}
	d.endWait()
	return false
}

// endWait ends the waits of [departures.wait]. The caller holds d.mu.
func (d *departures) endWait() {
	if d.empty != nil {
		close(d.empty)
		d.empty = nil
	}
}

// count returns the number of pending departures. The caller holds d.mu.
func (d *departures) count() int { return len(d.waiters) + len(d.holds) + len(d.conns) }

// drained returns the channel of the callers of wait, nil if there are none.
func (d *departures) drained() chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.empty
}

// abortWait ends the waits that began before a failed attempt, whose channel is drained: no departure can be applied
// now.
func (d *departures) abortWait(drained chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.empty == drained {
		d.endWait()
	}
}

// shrinkBatch halves the size of the next request after a refusal that was for the size.
func (d *departures) shrinkBatch(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if down := new(protocol.Error); errors.As(err, &down) {
		return
	}
	d.batchSize = max(1, d.batchSize/2)
}

// request returns the body of the next batch. Waiters leave before sessions end, as the end of a session may grant a
// lock. Without tickets the first request has no effect, but any batch drops the waiters of previous incarnations.
func (d *departures) request() (body []byte, count int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	tickets := d.nextTickets()
	d.inFlight.waiters = len(tickets)
	d.inFlight.holds = min(len(d.holds), d.batchSize)
	d.inFlight.conns = min(len(d.conns), d.batchSize)
	if len(tickets) > 0 || d.dropPrevious {
		body, count = protocol.AppendUnblock(body, protocol.LeaveGone, tickets...), count+1
	}
	for _, h := range d.holds[:d.inFlight.holds] {
		body, count = protocol.AppendReturnGrant(body, h), count+1
	}
	if d.inFlight.conns > 0 {
		body, count = protocol.AppendEndConnections(body, d.conns[:d.inFlight.conns]...), count+1
	}
	return body, count
}

// nextTickets returns the tickets of one request, at least one if any is pending. The caller holds d.mu.
func (d *departures) nextTickets() (tickets []uint64) {
	places := 0
	for _, w := range d.waiters[:min(len(d.waiters), d.batchSize)] {
		if places += w.places; places > maxLeavingPlaces && len(tickets) > 0 {
			break
		}
		tickets = append(tickets, w.ticket)
	}
	return tickets
}

// applied removes the departures of the last request. Others were only appended since.
func (d *departures) applied() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dropPrevious = false
	for _, w := range d.waiters[:d.inFlight.waiters] {
		delete(d.departed, w.ticket)
	}
	d.waiters = cutFront(d.waiters, d.inFlight.waiters)
	d.holds = cutFront(d.holds, d.inFlight.holds)
	d.conns = cutFront(d.conns, d.inFlight.conns)
	d.batchSize = maxLeaving
}

// cutFront removes the first n elements, and frees the array with the last one.
func cutFront[T any](all []T, n int) []T {
	if all = slices.Delete(all, 0, n); len(all) == 0 {
		return nil
	}
	return all
}

// wait is [Clients.Drained].
func (d *departures) wait(ctx context.Context) {
	d.mu.Lock()
	if d.count() == 0 {
		d.mu.Unlock()
		return
	}
	if d.empty == nil {
		d.empty = make(chan struct{})
	}
	empty := d.empty
	d.mu.Unlock()
	select {
	case <-empty:
	case <-ctx.Done():
	}
}
