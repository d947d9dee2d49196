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
	// leaveTogether is the most of each kind that leave in one request. leavePlaces is the most places in queues that
	// waiters of one request have together: a request is not cut, and others wait for it.
	leaveTogether = 1000
	leavePlaces   = 50 * 128
	// leaveAgain is the time between two tries.
	leaveAgain = 100 * time.Millisecond
)

// departures has the cluster forget clients that have left this node, by one batch at a time: waiters leave their
// queues, locks that were granted too late are given back, and the sessions of closed connections end. What comes
// meanwhile leaves together.
type departures struct {
	propose func(body []byte, count int) error
	wake    chan struct{}

	mu sync.Mutex
	// waiters are those that the cluster has to drop. dropPrevious: and all waiters of previous incarnations of this
	// node.
	waiters      []departure
	dropPrevious bool
	// gone delivers to clients that have left, by their tickets, until the cluster has forgotten them: one may be
	// served before that.
	gone map[uint64]func(protocol.Value)
	// holds are locks to be given back.
	holds []protocol.Hold
	// conns are connections whose sessions are to be ended.
	conns []int64
	// asked is how many of each the request under way has.
	asked struct{ waiters, holds, conns int }
	// together is how many of each go into a request.
	together int
	// empty is closed when nothing leaves any more, or nothing can; nil while no caller waits for this.
	empty chan struct{}
}

// departure is a waiter on the way out of the cluster's queues, in which it has so many places at most.
type departure struct {
	ticket uint64
	places int
}

func newDepartures(propose func(body []byte, count int) error) *departures {
	return &departures{
		propose: propose, wake: make(chan struct{}, 1), gone: make(map[uint64]func(protocol.Value)), together: leaveTogether,
	}
}

// add has note add what leaves.
func (d *departures) add(note func(*departures)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	note(d)
	wake(d.wake)
}

// addConn notes that a connection with sessions has closed.
func (d *departures) addConn(conn int64) {
	d.add(func(d *departures) { d.conns = append(d.conns, conn) })
}

// takeGone forgets a client that has left, and returns how its reply is delivered; nil: the cluster has forgotten it.
func (d *departures) takeGone(ticket uint64) (deliver func(protocol.Value)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	deliver = d.gone[ticket]
	delete(d.gone, ticket)
	return deliver
}

// run proposes what leaves, until ctx ends.
func (d *departures) run(ctx context.Context) {
	for {
		select {
		case <-d.wake:
		case <-ctx.Done():
			return
		}
		for d.any() {
			drained := d.drained()
			err := d.propose(d.request())
			if err == nil {
				d.applied()
				continue
			}
			d.halve(err)
			if errors.Is(err, protocol.ErrNoLeader) || errors.Is(err, protocol.ErrUncertain) {
				d.giveUp(drained)
			}
			select {
			case <-time.After(leaveAgain):
			case <-ctx.Done():
				return
			}
		}
	}
}

// any reports whether something is to be proposed.
func (d *departures) any() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count() > 0 || d.dropPrevious {
		return true
	}
	d.endWait()
	return false
}

// endWait ends the waits that are under way. The caller holds d.mu.
func (d *departures) endWait() {
	if d.empty != nil {
		close(d.empty)
		d.empty = nil
	}
}

// count is how many leave. The caller holds d.mu.
func (d *departures) count() int { return len(d.waiters) + len(d.holds) + len(d.conns) }

// drained is the channel of callers that wait until nothing leaves; nil: no caller waits.
func (d *departures) drained() chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.empty
}

// giveUp ends the waits from before a try that failed: nothing can leave now. drained is their channel.
func (d *departures) giveUp(drained chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.empty == drained {
		d.endWait()
	}
}

// halve has fewer leave in the next request, if the last one was refused.
func (d *departures) halve(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if down := new(protocol.Error); errors.As(err, &down) {
		return
	}
	d.together = max(1, d.together/2)
}

// request is for those that leave next. Waiters leave before sessions end: the end of a session may grant a
// lock. Without tickets the first request does nothing, but any batch drops the waiters of previous incarnations.
func (d *departures) request() (body []byte, count int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	tickets := d.nextTickets()
	d.asked.waiters = len(tickets)
	d.asked.holds = min(len(d.holds), d.together)
	d.asked.conns = min(len(d.conns), d.together)
	if len(tickets) > 0 || d.dropPrevious {
		body, count = protocol.AppendUnblock(body, protocol.LeaveGone, tickets...), count+1
	}
	for _, h := range d.holds[:d.asked.holds] {
		body, count = protocol.AppendReturnGrant(body, h), count+1
	}
	if d.asked.conns > 0 {
		body, count = protocol.AppendEndConnections(body, d.conns[:d.asked.conns]...), count+1
	}
	return body, count
}

// nextTickets are the tickets of one request: one at least, if any are left. The caller holds d.mu.
func (d *departures) nextTickets() (tickets []uint64) {
	places := 0
	for _, w := range d.waiters[:min(len(d.waiters), d.together)] {
		if places += w.places; places > leavePlaces && len(tickets) > 0 {
			break
		}
		tickets = append(tickets, w.ticket)
	}
	return tickets
}

// applied notes that the last request was applied. Since the request was made, others were appended at most.
func (d *departures) applied() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dropPrevious = false
	for _, w := range d.waiters[:d.asked.waiters] {
		delete(d.gone, w.ticket)
	}
	d.waiters = cutFront(d.waiters, d.asked.waiters)
	d.holds = cutFront(d.holds, d.asked.holds)
	d.conns = cutFront(d.conns, d.asked.conns)
	d.together = leaveTogether
}

// cutFront removes the first n. The memory of many goes with the last of them.
func cutFront[T any](all []T, n int) []T {
	if all = slices.Delete(all, 0, n); len(all) == 0 {
		return nil
	}
	return all
}

// wait waits until nothing leaves any more, or a try found no leader for as long as a command takes, or ctx ends.
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
