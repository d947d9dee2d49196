package fsm

import (
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/invariant"
)

// Prices and allowances of the lock table. The unit of work is about a nanosecond.
const (
	// lockWork is the work for each key of a lock command.
	lockWork = 1 << 10
	// grantWork is the work for one unit of the lock table's budget: see [locks.Table.Begin]. A change takes
	// [locks.ChangeUnits] units, and so 8 µs.
	grantWork = 512
	// sweepWork is the work for due events that an entry runs before its batches, which wait meanwhile.
	sweepWork = 1 << 22
	// minChanges is the number of changes that each entry may always make for due events, so that other work cannot delay
	// locks forever. Each lock command may always make this number of changes for its first key, and one more for each
	// further key. So the command can remove an expired hold.
	minChanges = 16
	// keepaliveChanges is the number of changes that a "node-keepalive" request may make for sessions that have ended.
	keepaliveChanges = 1 << 8
)

// sweepLocks runs due events of the lock table at the beginning of an entry.
func (c *call) sweepLocks() {
	t := c.st.Locks
	if due, ok := t.NextDue(); !ok || due > c.NowMillis {
		return
	}
	c.passLockBudget(min(c.lockWorkLeft, sweepWork), minChanges)
	t.Sweep()
	c.publishLockEvents()
}

// setLockBudget passes the time and a budget to the lock table. The budget is what the entry has left for changes, or
// the price of own changes if that is more. The request pays for the difference.
func (c *call) setLockBudget(own int) { c.passLockBudget(c.lockWorkLeft, own) }

// passLockBudget passes the time and a budget to the lock table: work, or the price of own changes if that is more.
func (c *call) passLockBudget(work int64, own int) {
	if invariant.On {
		c.st.published()
	}
	c.lockBudget = max(work, int64(own)*locks.ChangeUnits*grantWork)
	c.st.Locks.Begin(c.NowMillis, int(c.lockBudget/grantWork))
}

// ownWork returns the work that a request must pay for own changes if the entry's budget for changes does not suffice.
func (c *call) ownWork(own int) int64 {
	if c.Reading {
		return 0
	}
	return max(0, int64(own)*locks.ChangeUnits*grantWork-c.lockWorkLeft)
}

// ownChanges returns the number of changes that a lock command with this number of keys may always make.
func ownChanges(keys int) int { return minChanges - 1 + min(keys, locks.MaxKeys) }

// changeLocks returns the lock table to a command that changes it. keys is the number of keys of the command. In a
// script or a transaction, changeLocks first copies the table for a roll-back, in constant time.
func (c *call) changeLocks(keys int) *locks.Table {
	if c.Undo != nil && !c.journal.locksKept {
		c.Undo.Note(command.Change{Locks: c.st.Locks.Copy()})
		c.journal.locksKept = true
	}
	own := 0
	if keys > 0 {
		own = ownChanges(keys)
	}
	c.setLockBudget(own)
	return c.st.Locks
}

// settleLock runs the due events of a key. Each command that may write the key calls settleLock first.
func (c *call) settleLock(db int, key string) {
	c.changeLocks(1).Settle(db, key)
	c.publishLockEvents()
}

// HasLockAt settles a key, and reports whether the key is a lock then. If the budget does not suffice for the
// settlement, it sets OverBudget and reports true.
//
// Requires: the request writes.
func (c *call) HasLockAt(db int, key string) bool {
	switch {
	case !c.HasLocks():
		return false
	case !c.st.Locks.HasOrFlushed(db, key):
		return false
	case !c.Fits(c.ownWork(minChanges)):
		return true
	}
	c.settleLock(db, key)
	return c.st.Locks.Has(db, key)
}

// settleKeys settles the keys that a command reads, so that the command sees no hold that has ended. It reports whether
// the budget of the request sufficed.
func (c *call) settleKeys(b *binding) bool {
	var room [4]int
	positions := b.row.AppendKeyPositions(room[:0], c.Args)
	if b.subcommand > 0 {
		positions = append(room[:0], 1) // a request has a subcommand in its first word
	}
	for _, at := range positions {
		if key := c.Args[at]; c.st.Locks.HasDue(c.DB, key, c.NowMillis) && c.Fits(c.ownWork(minChanges)) {
			c.settleLock(c.DB, key)
		}
	}
	return !c.OverBudget
}

// publishLockEvents passes the events of the lock table to LockEvent, updates the items of the locks, and charges the
// entry for the changes.
func (c *call) publishLockEvents() {
	t := c.st.Locks
	used := max(0, c.lockBudget-int64(t.BudgetLeft())*grantWork)
	c.Spend(max(0, used-c.lockWorkLeft))
	c.lockWorkLeft = max(0, c.lockWorkLeft-used)
	c.lockBudget = int64(t.BudgetLeft()) * grantWork
	events := t.TakeEvents()
	touch := lockKey{db: -1}
	for i := range events {
		e := &events[i]
		at := lockKey{e.DB, e.Key}
		if touch != at && (e.Kind <= locks.JoinedQueue || e.Kind == locks.LeftQueue) {
			c.touchLock(touch)
			touch = at
		}
		switch e.Kind {
		case locks.Created, locks.Removed:
			c.markLock(e)
			touch.db = -1
		}
		c.LockEvent(e)
	}
	c.touchLock(touch)
}

// LockEvent passes an event to its observers: the replicated history, the auditors and the lockWatch of this node and,
// for native locks, the counters and the listeners of this node.
func (c *call) LockEvent(e *locks.Event) {
	if e.Stock != nil {
		e.Client = locks.Client{Origin: c.origin, Conn: int64(c.conn)}
		if e.Kind >= locks.Stored { // only audits read these
			c.auditStock(e)
			return
		}
		e.Stock.ByName = e.Kind == locks.Released && c.Script == nil && c.lastBinding.deletes
		c.recordStockLoss(e)
		if e.Kind == locks.Lost && c.Interest&event.InLocks != 0 {
			c.auditStock(e)
		}
		c.watch.observe(e, c.NowMillis)
		return
	}
	c.recordLoss(e)
	if c.Interest&event.InLocks != 0 {
		c.auditNative(e)
	}
	c.watch.observe(e, c.NowMillis)
	c.locked.observe(e)
	c.publishLockEvent(e)
}

// lockKey is a key of a database.
type lockKey struct {
	db  int
	key string
}

// markLock stores the item of a Created lock, or removes that of a Removed lock.
func (c *call) markLock(e *locks.Event) {
	if e.Kind == locks.Created {
		c.Store(e.DB, keyspace.NewLock(c.HashOf(e.Key), e.Text))
		return
	}
	if it := c.FindIn(e.DB, e.Key); it != nil && it.IsLock() {
		c.RemoveFrom(e.DB, it)
		c.NotifyIn(e.DB, event.ClassGeneric, "del", e.Key)
	}
}

// touchLock gives the item of a lock another version, so that EXEC regards the key as changed.
func (c *call) touchLock(at lockKey) {
	if at.db < 0 {
		return
	}
	if it := c.FindIn(at.db, at.key); it != nil && it.IsLock() {
		c.Store(at.db, *it)
	}
}

// observe counts an event of a native lock.
func (n *LockCounts) observe(e *locks.Event) {
	switch e.Kind {
	case locks.Refused:
		n.Refusals++
	case locks.Granted:
		n.Grants++
		if e.WaitedMillis > 0 {
			n.Waited.add(e.WaitedMillis)
		}
	case locks.Released:
		n.Held.add(e.HeldMillis)
	case locks.Lost:
		n.Held.add(e.HeldMillis)
		switch e.Reason {
		case locks.Expired:
			n.LostExpired++
		case locks.SessionGone:
			n.LostSession++
		case locks.Broken:
			n.LostBroken++
		case locks.Flushed:
			n.LostFlushed++
		}
	case locks.WaitEnded:
		if e.ByTime {
			n.Timeouts++
		}
	}
}

// publishLockEvent emits an event of a native lock to the listeners of this node.
func (c *call) publishLockEvent(e *locks.Event) {
	if c.Interest&event.InMessages != 0 {
		if said := c.messageOf(e); said != "" {
			c.Events = append(c.Events, event.Event{Kind: event.LockMessage, DB: e.DB, Key: e.Key, Payload: said})
		}
	}
	switch e.Kind {
	case locks.Granted, locks.LeftQueue:
		if e.WaitedMillis > slowWaitMillis {
			c.notifyClient(event.LockSlow, e, e.Client)
		}
	case locks.Lost:
		c.notifyClient(event.LockLost, e, e.Client)
		if e.Attached != e.Client {
			c.notifyClient(event.LockLost, e, e.Attached)
		}
	case locks.Late:
		if e.Attached.Conn != 0 {
			c.notifyClient(event.LockSlow, e, e.Attached)
		} else {
			c.notifyClient(event.LockSlow, e, e.Client)
		}
	case locks.WaitEnded:
		c.notifyWaiter(e)
	case locks.SessionEnded:
		c.notifyClient(event.SessionLeft, e, e.Attached)
	}
}

// slowWaitMillis bounds a wait. A grant after a longer wait is slow.
const slowWaitMillis = 1000

// messageOf returns the message that the channel of a lock gets for an event, or "" if it gets none.
func (c *call) messageOf(e *locks.Event) string {
	switch e.Kind {
	case locks.Granted:
		return "granted " + e.Owner + " " + command.FormatUint(e.Fence)
	case locks.Released:
		return "released " + e.Owner + " " + command.FormatUint(e.Fence)
	case locks.Lost:
		text, _ := c.whyLost(e)
		return strings.TrimSuffix("lost "+e.Owner+" "+command.FormatUint(e.Fence)+" "+e.Reason.String()+" "+text, " ")
	case locks.TimedOut:
		return "timeout " + e.Owner
	case locks.JoinedQueue, locks.LeftQueue:
		return "waiting " + strconv.Itoa(e.Waiters)
	}
	return ""
}

// notifyClient emits an event about a lock to a connection, if this node has the connection.
func (c *call) notifyClient(kind event.Kind, e *locks.Event, to locks.Client) {
	if to.Origin != c.thisNode || to.Conn == 0 {
		return
	}
	reason := e.Reason.String()
	if e.Kind == locks.LeftQueue {
		reason = e.How.String()
	}
	text, by := c.whyLost(e)
	c.Events = append(c.Events, event.Event{Kind: kind, DB: e.DB, Key: e.Key, Lock: &event.LockNews{
		Owner: e.Owner, Fence: int64(e.Fence), Reason: reason, Text: text, By: by, Conn: to.Conn, Session: e.Session,
		WaitedMillis: e.WaitedMillis, HeldMillis: e.HeldMillis, SinceRenewedMillis: e.SinceRenewedMillis,
		LeaseMillis: e.LeaseMillis,
	}})
}

// notifyWaiter emits the reply to a request whose wait has ended, if the client is connected to this node.
func (c *call) notifyWaiter(e *locks.Event) {
	if e.Name.Origin != c.thisNode {
		return
	}
	reply := protocol.Null
	switch {
	case e.Fence != 0:
		reply = protocol.Integer(int64(e.Fence))
	case e.Err != nil:
		reply = refusalOf(e.Err)
	}
	for _, key := range e.Again {
		reply.Elems = append(reply.Elems, protocol.Bulk(key))
	}
	c.Events = append(c.Events, event.Event{
		Kind: event.Woken, Seq: e.Name.Ticket, Reply: &reply, DB: e.DB, Key: e.Key,
		Lock: &event.LockNews{
			Owner: e.Owner, Fence: int64(e.Fence), Conn: e.Client.Conn, WaitedMillis: e.WaitedMillis,
		},
	})
}

// refusalOf returns the reply for an error of the lock table.
func refusalOf(err error) protocol.Value {
	switch err {
	case locks.ErrMode:
		return protocol.ErrLockMode.Value()
	case locks.ErrNoSession:
		return protocol.ErrNoSession.Value()
	case locks.ErrTooLong:
		return protocol.ErrOwnerTooLong.Value()
	case locks.ErrFull:
		return protocol.ErrLocksFull.Value()
	case locks.ErrSessionFull:
		return errFullSession
	case locks.ErrNodeEnded:
		return protocol.ErrCutOff.Value()
	case locks.ErrUnblocked:
		return protocol.ErrUnblocked.Value()
	case locks.ErrAskedAgain:
		return protocol.ErrAskedAgain.Value()
	case locks.ErrTicket:
		return protocol.Err("the ticket is taken")
	}
	return protocol.Err("the request for a lock is corrupt")
}

// paysForKeys charges the work for this number of keys. It reports whether the budget sufficed; if not, it charges
// nothing.
func (c *call) paysForKeys(keys int) bool { return c.Pays(int64(keys) * lockWork) }
