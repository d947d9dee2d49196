package fsm

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// notifyWoken emits to the client of a waiter, if it is this node's, that the wait has ended.
func (c *call) notifyWoken(w *waits.Waiter, reply protocol.Value) {
	if w.Origin == c.own {
		c.Events = append(c.Events, event.Event{Kind: event.Woken, Seq: w.Ticket, Reply: &reply})
	}
}

// removalLimit bounds the places in queues that an entry frees, of waiters whose time or whose node has ended. The
// others count as ended, or wait a little longer.
const removalLimit = 10_000

// beginWaits serves, as an entry begins, what the last entry had no room for, and ends waits.
func (c *call) beginWaits() {
	t := c.st.Waits
	if t.Len() == 0 {
		return
	}
	if c.serve(); t.HasReady() {
		return // who is about to be served is not told that the time is over
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

// serve tries the waiters of all ready keys in the order of Redis: key after key as they became ready, the waiters of a
// key by arrival. Keys for which the entry has no room stay ready. The machine runs no other request before that, so no
// request overtakes a waiter.
func (c *call) serve() {
	ownSeq := c.OwnSeq
	c.OwnSeq = 0 // what waiters change is not by the batch under way
	defer func() { c.OwnSeq = ownSeq }()
	for c.st.Waits.HasReady() && c.wakeBudget.left > 0 {
		if !c.serveNext() {
			return
		}
	}
}

// serveNext tries the next waiter, and reports whether there was room.
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

// retry runs the request of a waiter. waits: it cannot be served yet. ok: there was room; otherwise the request has
// done nothing, but locks among its keys may have ended: their events stay.
func (c *call) retry(w *waits.Waiter) (reply protocol.Value, waits, ok bool) {
	c.DB, c.Args, c.origin, c.seq = w.DB, w.Words, w.Origin, 0
	c.acting, c.Account = acting{}, w.Account
	defer c.closeAccount()
	c.Work, c.Ceiling = requestWork, c.wakeBudget.ceiling()
	b := c.lookup(w.Words[0])
	if b == nil || !b.blocks {
		return protocol.Err("the waiting request is corrupt"), false, true
	}
	c.Unserved, c.Counting = command.Unserved{}, false
	reply = b.do(c)
	waits, ok = c.Unserved.Count > 0, !c.Over
	c.wakeBudget.left -= c.Work
	c.Over = false
	return reply, waits, ok
}
