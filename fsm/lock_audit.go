package fsm

import (
	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
)

// auditNative tells the auditors of the node what happened to a native lock.
func (c *call) auditNative(e *locks.Event) {
	what, at := "", c.NowMillis
	switch e.Kind {
	case locks.Granted:
		what = event.LockGranted
	case locks.Renewed:
		what = event.LockRenewed
	case locks.Released:
		what = event.LockReleased
	case locks.Lost:
		what, at = event.LockTaken, e.SinceMillis+e.HeldMillis
	default:
		return
	}
	ch := c.addChange(what, e.DB, e.Key, e.Owner, &e.Client)
	ch.AtMillis, ch.WaitedMillis, ch.HeldMillis = c.ToWall(at), e.WaitedMillis, e.HeldMillis
	ch.Fence, ch.Session = int64(e.Fence), e.Session
	switch {
	case e.Kind == locks.Granted && e.Mode == locks.Exclusive:
		ch.Limit = 1
	case e.Kind == locks.Lost:
		setLoss(ch, e.Reason, c.st.history.kinds[nativeLocks].cause(e.Cause))
	}
}

// setLoss says why a hold was lost. cause is nil where no command took the hold away.
func setLoss(ch *event.LockChange, reason locks.Reason, cause *lossCause) {
	if ch.Reason = reason.String(); cause != nil {
		ch.Command, ch.By, ch.Text = cause.command, cause.by(), cause.text
	}
}

// mostOwners is how many owners of one hash are told one by one, where all of them get it or lose it at once.
const mostOwners = 100

// auditStock tells the auditors which owners have a stock lock since this event, and which have it no longer. The
// values of the key before and after the event decide, whatever the command was.
func (c *call) auditStock(e *locks.Event) {
	it, next := &e.Stock.Item, &e.Stock.Next
	switch e.Kind {
	case locks.Lost:
		c.auditLost(e)
	case locks.Stored:
		held, holds := c.isHeld(it), c.isHeld(next)
		if c.breaking || held && holds && isSameHold(it, next) {
			return
		}
		if held {
			c.auditEnd(e)
		}
		if holds {
			s := c.newStockChange(event.LockGranted, e.DB, next)
			c.auditOwners(&s)
		}
	case locks.Joined:
		s := c.newStockChange(event.LockGranted, e.DB, it)
		s.client = e.Client
		c.auditOwner(&s, e.Owner)
	case locks.Parted:
		c.auditEnd(e)
	}
}

// isHeld reports whether an item is a stock lock that somebody holds.
func (c *call) isHeld(it *keyspace.Item) bool {
	return command.IsStockLock(it) && !it.Ended(c.NowMillis)
}

// isSameHold reports whether the owners of two stock locks at one key are the same, and took it when.
func isSameHold(it, next *keyspace.Item) bool {
	if !it.IsString() || !next.IsString() {
		return next.Shares(it)
	}
	was, _ := it.Mark()
	is, _ := next.Mark()
	return was.SinceMillis == is.SinceMillis && it.Value() == next.Value()
}

// stockChange is what the changes of the owners of a stock lock have in common.
type stockChange struct {
	what   string // LockGranted, or LockTaken if an owner may also have released
	db     int
	it     *keyspace.Item
	mark   keyspace.Mark
	client locks.Client
	// byCommand: the command under way ended the hold, which is a release if the command is the owner's: of all, or of
	// those that it names.
	byCommand, ofAll bool
	// reason and cause are of a loss.
	reason locks.Reason
	cause  *lossCause
}

func (c *call) newStockChange(what string, db int, it *keyspace.Item) stockChange {
	m, _ := it.Mark()
	return stockChange{what: what, db: db, it: it, mark: m, client: c.markedBy(&m)}
}

// auditLost tells of the owners that have lost a stock lock to time, to a flush or to LOCK.BREAK.
func (c *call) auditLost(e *locks.Event) {
	if !command.IsStockLock(&e.Stock.Item) {
		return
	}
	s := c.newStockChange(event.LockTaken, e.DB, &e.Stock.Item)
	s.reason, s.cause = e.Reason, c.st.history.kinds[stockLocks].cause(e.Cause)
	if owners := e.Stock.Owners; len(owners) == 1 && e.Stock.Count == 1 {
		c.auditOwner(&s, owners[0].Owner) // LOCK.BREAK may have left others
		return
	}
	c.auditOwners(&s)
}

// auditEnd tells of the owners whose stock lock the command under way has ended: one that Parted, or all. Each has
// released or lost it, by the rules of [call.stockTaken]; what stays the key's value, nobody has taken away.
func (c *call) auditEnd(e *locks.Event) {
	it, next := &e.Stock.Item, &e.Stock.Next
	s := c.newStockChange(event.LockTaken, e.DB, it)
	s.byCommand, s.reason = true, locks.Broken
	s.ofAll = c.isTaker(&s.mark) || c.watches(e.DB, it.Key()) || e.Kind == locks.Parted && c.Script == nil ||
		next.Shares(it) || it.IsString() && next.IsString() && next.Hash == it.Hash && next.Value() == it.Value()
	if e.Kind == locks.Parted {
		c.auditOwner(&s, e.Owner)
		return
	}
	c.auditOwners(&s)
}

// auditOwners tells of all owners of a stock lock.
func (c *call) auditOwners(s *stockChange) {
	if s.it.IsString() {
		c.auditOwner(s, s.it.Value())
	} else if h, ok := s.it.Collection().(*collection.Hash); ok {
		c.auditFields(*s, h)
	}
}

// auditFields tells of the owners in a hash, or of their number if many are its owners no longer.
func (c *call) auditFields(s stockChange, h *collection.Hash) {
	if n := holders(h); n > mostOwners && s.what != event.LockGranted {
		c.auditOwner(&s, "").Count = n
		return
	}
	left := mostOwners
	h.All(func(name, _ string) bool {
		c.auditOwner(&s, name)
		left--
		return left > 0
	})
}

// auditOwner tells of one owner.
func (c *call) auditOwner(s *stockChange, owner string) *event.LockChange {
	if owner == modeField && !s.it.IsString() {
		return nil
	}
	at := c.NowMillis
	if s.reason == locks.Expired {
		at = s.it.DeadlineMillis
	}
	ch := c.addChange(s.what, s.db, s.it.Key(), owner, &s.client)
	ch.Stock, ch.AtMillis, ch.HeldMillis = true, c.ToWall(at), max(0, at-s.mark.SinceMillis)
	switch {
	case s.what == event.LockGranted:
		if s.it.IsString() {
			ch.Limit = 1
		}
	case s.byCommand && (s.ofAll || c.names(owner)):
		ch.What = event.LockReleased
	default:
		if s.byCommand && s.cause == nil {
			cause := c.requester("")
			s.cause = &cause
		}
		setLoss(ch, s.reason, s.cause)
	}
	return ch
}

// auditFlush tells that the stock locks of a database that were not told of one by one are lost, too.
func (c *call) auditFlush(db int) {
	cause := c.requester("")
	ch := c.addChange(event.LocksFlushed, db, "", "", &locks.Client{})
	ch.Stock, ch.AtMillis = true, c.WallNow()
	setLoss(ch, locks.Flushed, &cause)
}

// addChange adds a change of a lock to the events of the entry, for the caller to complete. Auditors of all nodes get
// the same changes, in one order.
func (c *call) addChange(what string, db int, key, owner string, client *locks.Client) *event.LockChange {
	c.changes = append(c.changes, event.LockChange{
		What: what, Owner: owner, Node: client.Origin.Node, Conn: client.Conn,
		Own: client.Conn != 0 && client.Origin == c.own,
	})
	ch := &c.changes[len(c.changes)-1]
	c.Events = append(c.Events, event.Event{Kind: event.LockChanged, DB: db, Key: key, Change: ch})
	return ch
}
