package fsm

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/locks"
)

// auditNative tells the auditors of the node what happened to a native lock.
func (c *call) auditNative(e *locks.Event) {
	ch := event.LockChange{
		Fence: int64(e.Fence), Session: e.Session, WaitedMillis: e.WaitedMillis, HeldMillis: e.HeldMillis,
	}
	at := c.NowMillis
	switch e.Kind {
	case locks.Granted:
		ch.What = event.LockGranted
		if info := c.st.Locks.Info(e.DB, e.Key, c.NowMillis, 0); info != nil && info.Mode == locks.Exclusive {
			ch.Limit = 1
		}
	case locks.Renewed:
		ch.What = event.LockRenewed
	case locks.Released:
		ch.What = event.LockReleased
	case locks.Lost:
		ch.What, ch.Reason, at = event.LockTaken, e.Reason.String(), e.SinceMillis+e.HeldMillis
		if cause := c.st.history.kinds[nativeLocks].cause(e.Cause); cause != nil {
			ch.Command, ch.By, ch.Text = cause.command, cause.by(), cause.text
		}
	default:
		return
	}
	ch.AtMillis = command.SaturatingAdd(at, c.WallOffsetMillis)
	c.audit(e.DB, e.Key, e.Owner, e.Client, &ch)
}

// auditStock tells the auditors of a stock lock that was granted, or that ended and of whose owners nobody lost it:
// [call.auditStockLoss] tells of losses. The events from the index on are those of the locks.Event.
func (c *call) auditStock(e *locks.Event, from int) {
	it := &e.Stock.Item
	switch e.Kind {
	case locks.Granted:
		owner, limit := e.Owner, 1
		if !it.IsString() {
			limit = 0 // a lock of Redisson may have several owners
			owners, _ := stockOwners(it, 1)
			if len(owners) == 0 {
				return
			}
			owner = owners[0].Owner
		}
		c.audit(e.DB, e.Key, owner, e.Client, &event.LockChange{
			What: event.LockGranted, Stock: true, AtMillis: c.ToWall(c.NowMillis), Limit: limit,
		})
	case locks.Released, locks.Overwritten:
		if !command.IsStockLock(it) {
			return
		}
		if it.IsString() {
			c.auditStockEnd(e, it.Value(), from)
			return
		}
		owners, _ := stockOwners(it, mostAlike)
		for i := range owners {
			c.auditStockEnd(e, owners[i].Owner, from)
		}
	}
}

// auditStockEnd tells the auditors that an owner has released a stock lock, unless the owner lost it.
func (c *call) auditStockEnd(e *locks.Event, owner string, from int) {
	for i := range c.Events[from:] {
		if o := &c.Events[from+i]; o.Kind == event.LockChanged && o.Change.Owner == owner {
			return
		}
	}
	m, _ := e.Stock.Item.Mark()
	c.audit(e.DB, e.Key, owner, c.markedBy(&m), &event.LockChange{
		What: event.LockReleased, Stock: true, AtMillis: c.ToWall(c.NowMillis), HeldMillis: c.NowMillis - m.SinceMillis,
	})
}

// auditStockLoss tells the auditors that one owner has lost a stock lock.
func (c *call) auditStockLoss(l *lockLoss) {
	ch := event.LockChange{
		What: event.LockTaken, Stock: true, Reason: l.reason.String(), AtMillis: l.wall(l.atMillis),
		HeldMillis: max(0, l.atMillis-l.sinceMillis),
	}
	if cause := c.st.history.kinds[stockLocks].cause(l.cause); cause != nil {
		ch.Command, ch.By, ch.Text = cause.command, cause.by(), cause.text
	}
	c.audit(l.db, l.key, l.owner, l.client, &ch)
}

// audit adds a change of a lock to the events of the entry. Auditors of all nodes get the same changes, in one order.
func (c *call) audit(db int, key, owner string, client locks.Client, ch *event.LockChange) {
	ch.Owner, ch.Node, ch.Conn = owner, client.Origin.Node, client.Conn
	ch.Own = client.Conn != 0 && client.Origin == c.own
	c.changes = append(c.changes, *ch)
	c.Events = append(c.Events, event.Event{
		Kind: event.LockChanged, DB: db, Key: key, Change: &c.changes[len(c.changes)-1],
	})
}
