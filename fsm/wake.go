package fsm

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// notifyWoken emits the reply to a request whose wait has ended, if the client of the waiter is connected to this node.
func (c *call) notifyWoken(w *waits.Waiter, reply protocol.Value) {
	if w.Origin == c.thisNode {
		c.Events = append(c.Events, event.Event{Kind: event.Woken, Seq: w.Ticket, Reply: &reply})
	}
}

// removalLimit bounds the queue entries of the waiters that one log entry removes since their node has ended, and also
// of those that it removes since their deadline has passed. Later log entries remove the other waiters.
const removalLimit = sweepLimit

// beginWaits runs at the beginning of a log entry. It serves the waiters for which the last log entry had no room, and
// then removes waiters whose node has ended or whose deadline has passed.
func (c *call) beginWaits() {
	t := c.st.Waits
	if t.Len() == 0 {
		return
	}
	if c.serve(); t.HasReady() {
		return // a waiter that is about to be served must not time out
	}
	for n := 0; n < removalLimit && t.Sweeping(); {
		if w := t.Sweep(); w != nil {
			n += w.KeyCount
			c.notifyWoken(w, protocol.ErrCutOff.Value())
		}
	}
	for n := 0; n < removalLimit; {
		w := t.First()
		if w == nil || w.DeadlineMillis >= c.NowMillis {
			return
		}
		n += w.KeyCount
		t.Remove(w)
		c.notifyWoken(w, protocol.NullArray)
	}
}

// serve runs the requests of the waiters of all ready keys. The order is that of Redis: the keys in the order in which
// they became ready, and the waiters of a key in the order of their arrival. Keys for which the log entry has no room
// stay ready. The machine runs no other request until no key is ready, so no request overtakes a waiter.
func (c *call) serve() {
	ownSeq := c.OwnSeq
	c.OwnSeq = 0 // the changes by waiters do not belong to the current batch
	defer func() { c.OwnSeq = ownSeq }()
	for c.st.Waits.HasReady() && c.wakeBudget.left > 0 {
		if !c.serveNext() {
			return
		}
	}
}

// serveNext runs the request of the next waiter, and reports whether the budget sufficed.
func (c *call) serveNext() bool {
	t := c.st.Waits
	ready, _ := t.Ready()
	if ready.Whole {
		c.wakeBudget.left -= command.KeyWork
		t.Spread()
		return true
	}
	c.DB = ready.DB
	it := c.FindIn(c.DB, ready.Key)
	if it == nil {
		c.wakeBudget.left -= command.KeyWork
		t.Served()
		return true
	}
	w := t.Next(ready.DB, ready.Key, it.Kind(), ready.From)
	switch {
	case w == nil:
		c.wakeBudget.left -= command.KeyWork
		t.Served()
		return true
	case t.HasNodeEnded(w):
		c.wakeBudget.left -= command.KeyWork
		t.Tried(w.Order + 1)
		return true
	}
	t.Tried(w.Order)
	reply, waits, ok := c.retry(w)
	switch {
	case !ok:
		return false
	case waits:
		t.Tried(w.Order + 1)
	default:
		t.Remove(w)
		c.notifyWoken(w, reply)
	}
	return true
}

// retry runs the request of a waiter. waits reports whether the request must wait further. ok reports whether the
// budget sufficed. If not, the request has changed nothing, but holds of its keys may have ended, and their events
// remain.
func (c *call) retry(w *waits.Waiter) (reply protocol.Value, waits, ok bool) {
	c.DB, c.Args, c.origin, c.seq = w.DB, w.Words, w.Origin, 0
	c.accounting, c.Account = accounting{}, w.Account
	defer c.closeAccount()
	c.Work, c.Ceiling = requestWork, c.wakeBudget.ceiling()
	b := c.lookup(w.Words[0])
	if b == nil || !b.blocks {
		return protocol.Err("the waiting request is corrupt"), false, true
	}
	c.Unserved, c.Counting = command.Unserved{}, false
	reply = b.do(c)
	waits, ok = c.Unserved.Count > 0, !c.OverBudget
	c.wakeBudget.left -= c.Work
	c.OverBudget = false
	return reply, waits, ok
}
