package fsm

import (
	"slices"
	"strconv"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// waitOps has the functions of the requests about waiting that only nodes make: see protocol/waiting.go.
var waitOps = map[string]op{
	"wait-for-key": waitForKeyOp,
	"drop":         endNodeOp,
	"unblock":      unblockOp,
}

// enqueue adds the current request, which could not be served, to the waiters for keys. u has its keys and its
// deadline.
func (c *call) enqueue(ticket uint64, u command.Unserved) protocol.Value {
	w := waits.Waiter{
		Name: waits.Name{Origin: c.origin, Ticket: ticket}, DB: c.DB, Kind: u.Kind, DeadlineMillis: u.DeadlineMillis,
		Words: c.Args, KeyFrom: u.From, KeyCount: u.Count, Account: c.Account,
	}
	bytes := w.Bytes()
	switch {
	case !c.Pays(bytes + int64(u.Count)*command.WriteWork):
		return command.ErrOverWork
	case c.Full() != nil:
		return c.Full().Value()
	case c.st.Waits.Bytes()+bytes > c.bounds.waiting:
		return protocol.ErrTooManyWait.Value()
	case c.isOverWaiterQuota():
		return c.refusal
	}
	w.Own()
	w.Origin.Node = c.st.sessions.nameOf(w.Origin.Node)
	if !c.st.Waits.Add(&w) {
		return protocol.Err("the ticket is taken")
	}
	return protocol.Parked
}

// waitForKeyWords is the number of words before the command of a "wait-for-key" request.
const waitForKeyWords = 2

// waitForKeyOp runs "wait-for-key <ticket> <command> <word>…". It runs the command, and adds it to the waiters if it
// cannot be served. The reply is that of the command, or [protocol.Parked].
func waitForKeyOp(c *call) protocol.Value {
	if len(c.Args) <= waitForKeyWords {
		return command.ErrArity("wait-for-key")
	}
	ticket, ok := parseTicket(c.Args[1])
	words := c.Args[waitForKeyWords:]
	b := c.lookup(words[0])
	switch {
	case !ok, c.Undo != nil, b == nil, !b.blocks:
		return protocol.Err("request to wait is corrupt")
	case !b.acceptsArity(len(words)):
		return command.ErrArity(words[0])
	case c.refuses(b, words):
		return c.refusal
	}
	args := c.Args
	c.Args, c.Unserved = words, command.Unserved{}
	reply := b.do(c)
	if c.Unserved.Count > 0 {
		reply = c.enqueue(ticket, c.Unserved)
	}
	c.Args = args
	return reply
}

// unblockOp runs "unblock <how> <ticket>…". It removes waiters of the node that made the request, and replies with
// their number.
func unblockOp(c *call) protocol.Value {
	if len(c.Args) < 2 || c.Undo != nil {
		return command.ErrArity("unblock")
	}
	if !c.affordsLeaving(c.Args[2:]) {
		return command.ErrOverWork
	}
	left := int64(0)
	for _, word := range c.Args[2:] {
		name := c.waiterOf(word)
		w := c.st.Waits.Find(name)
		if w == nil {
			left += c.unblockLock(name)
			continue
		}
		c.st.Waits.Remove(w)
		left++
		switch protocol.Leave(c.Args[1]) {
		case protocol.LeaveTimeout:
			c.notifyWoken(w, protocol.NullArray)
		case protocol.LeaveError:
			c.notifyWoken(w, protocol.ErrUnblocked.Value())
		}
	}
	return protocol.Integer(left)
}

// waiterOf returns the name of the waiter with a ticket, of the node that made the current batch.
func (c *call) waiterOf(word string) waits.Name {
	ticket, _ := parseTicket(word)
	return waits.Name{Origin: c.origin, Ticket: ticket}
}

// placeWork is the work for each queue that a waiter leaves.
const placeWork = locks.QueueUnits * grantWork

// affordsLeaving reports whether the budget suffices to remove the waiters with some tickets. It charges the work,
// except for the part that the lock table charges itself.
func (c *call) affordsLeaving(words []string) bool {
	work, later := int64(len(words))*command.WriteWork, int64(0)
	for _, word := range words {
		name := c.waiterOf(word)
		if w := c.st.Waits.Find(name); w != nil {
			work += int64(w.KeyCount) * placeWork
		} else if places := c.st.Locks.QueuesOf(name); places > 0 {
			work += placeWork
			later += int64(places-1) * placeWork
		}
	}
	if !c.Fits(work + later) {
		return false
	}
	c.Spend(work)
	return true
}

// endNodeOp runs "drop <node> <epoch>". It ends the waits of the clients of a node, in its incarnations up to an epoch.
// The leader makes this request if the node was silent for too long. If the node comes back, it replies to its clients.
func endNodeOp(c *call) protocol.Value {
	if len(c.Args) != 3 || c.Undo != nil {
		return command.ErrArity("drop")
	}
	epoch, err := strconv.ParseUint(c.Args[2], 10, 64)
	if err != nil {
		return command.ErrNotInteger
	}
	c.st.Waits.EndNodeWaits(c.Args[1], epoch)
	c.changeLocks(0).EndNodeWaits(c.Args[1], epoch)
	c.publishLockEvents()
	return protocol.OK
}

// endPreviousIncarnations ends the waits of the earlier incarnations of a node. It runs before each batch, since no
// batch of an earlier incarnation is applied after this one.
func (c *call) endPreviousIncarnations(o protocol.Incarnation) {
	if o == c.incarnation {
		return
	}
	c.incarnation = protocol.Incarnation{Node: c.st.sessions.nameOf(o.Node), Epoch: o.Epoch}
	if c.st.Waits.Len() > 0 {
		c.st.Waits.EndNodeWaitsBefore(waits.Name{Origin: o})
	}
	if c.st.Locks.Stats().Waiters > 0 {
		c.changeLocks(0).EndNodeWaitsBefore(waits.Name{Origin: o})
		c.publishLockEvents()
	}
}

// keptOrigin returns the incarnation that made the current batch, with the name of the node in memory that may be kept.
func (c *call) keptOrigin() protocol.Incarnation {
	if c.origin == c.incarnation {
		return c.incarnation
	}
	return protocol.Incarnation{Node: c.st.sessions.nameOf(c.origin.Node), Epoch: c.origin.Epoch}
}

func (m *machine) Waits(o protocol.Incarnation, ticket uint64) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	name := waits.Name{Origin: o, Ticket: ticket}
	return m.st.Waits.Find(name) != nil || m.st.Locks.IsWaiting(name)
}

func (m *machine) WaitingIncarnations() []protocol.Incarnation {
	m.mu.RLock()
	defer m.mu.RUnlock()
	incarnations := append(m.st.Waits.Incarnations(), m.st.Locks.WaitingIncarnations()...)
	slices.SortFunc(incarnations, protocol.Incarnation.Compare)
	return slices.Compact(incarnations)
}

func (m *machine) Waiting() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.st.Waits.Len() > 0 || m.st.Locks.Stats().Waiters > 0
}

func parseTicket(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil && n != ^uint64(0)
}
