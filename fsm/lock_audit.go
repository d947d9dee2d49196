package fsm

import (
	"slices"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
)

// auditNative emits a change of a native lock, or the end of a wait for it, to the auditors of this node.
func (c *call) auditNative(e *locks.Event) {
	what, at, held := "", c.NowMillis, e.HeldMillis
	switch e.Kind {
	case locks.Granted:
		what = event.LockGranted
		if e.SinceMillis != 0 {
			what, held = event.LockRenewed, at-e.SinceMillis
		}
	case locks.Renewed:
		what = event.LockRenewed
	case locks.Released:
		what = event.LockReleased
	case locks.Lost:
		what, at = event.LockTaken, e.SinceMillis+e.HeldMillis
	case locks.LeftQueue:
		what, at = event.LockWaitEnded, e.SinceMillis+e.WaitedMillis
	default:
		return
	}
	ch := c.addChange(what, e.DB, e.Key, e.Owner)
	c.setClient(ch, &e.Client)
	ch.AtMillis, ch.WaitedMillis, ch.HeldMillis = c.ToWall(at), e.WaitedMillis, held
	ch.Fence, ch.Session, ch.Note = int64(e.Fence), e.Session, e.Note
	switch {
	case e.Kind == locks.Lost:
		setLoss(ch, e.Reason, c.st.history.kinds[nativeLocks].cause(e.CauseID))
	case e.Kind == locks.LeftQueue:
		ch.Reason = e.How.String()
	case e.Kind != locks.Released:
		ch.Shared = e.Mode != locks.Exclusive
	}
}

// setLoss stores in ch why a hold was lost. cause is the command that ended the hold, or nil if no command did.
func setLoss(ch *event.LockChange, reason locks.Reason, cause *lossCause) {
	if ch.Reason = reason.String(); cause != nil {
		ch.Command, ch.By, ch.Text = cause.command, cause.by(), cause.text
	}
}

// maxAuditedOwners bounds the changes that are emitted for the owners of one hash.
const maxAuditedOwners = 100

// auditStock emits a change for each owner that took, released or lost a stock lock by an event. It compares the values
// of the key before and after the event, and so covers every command.
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

// isHeld reports whether an item is a stock lock whose lease has not ended.
func (c *call) isHeld(it *keyspace.Item) bool {
	return command.IsStockLock(it) && !it.Ended(c.NowMillis)
}

// isSameHold reports whether two items of one key are the same hold: they have the same owners, and were taken at the
// same time.
func isSameHold(it, next *keyspace.Item) bool {
	if !it.IsString() || !next.IsString() {
		return next.Shares(it)
	}
	was, _ := it.Mark()
	is, _ := next.Mark()
	return was.SinceMillis == is.SinceMillis && it.Value() == next.Value()
}

// stockChange has the fields that the changes of all owners of a stock lock share.
type stockChange struct {
	what   string // LockGranted, or LockTaken, which auditOwner changes to LockReleased for a release
	db     int
	it     *keyspace.Item
	mark   keyspace.Mark
	client locks.Client // the client that took the lock
	// byCommand is set if the current command ended the holds. An owner that the command names has then released its hold.
	// If ofAll is set, all owners have.
	byCommand, ofAll bool
	reason           locks.Reason // of a loss
	cause            *lossCause   // of a loss, or nil
}

func (c *call) newStockChange(what string, db int, it *keyspace.Item) stockChange {
	m, _ := it.Mark()
	return stockChange{what: what, db: db, it: it, mark: m, client: c.markedBy(&m)}
}

// auditLost emits the loss of a stock lock that expired, was flushed or was broken by LOCK.BREAK.
func (c *call) auditLost(e *locks.Event) {
	if !command.IsStockLock(&e.Stock.Item) {
		return
	}
	s := c.newStockChange(event.LockTaken, e.DB, &e.Stock.Item)
	s.reason, s.cause = e.Reason, c.st.history.kinds[stockLocks].cause(e.CauseID)
	if owners := e.Stock.Owners; len(owners) == 1 && e.Stock.Count == 1 {
		c.auditOwner(&s, owners[0].Owner) // other owners may still hold the lock
		return
	}
	c.auditOwners(&s)
}

// auditEnd emits that the current command has ended a stock lock: for the owner of a Parted event, and otherwise for
// all owners. The rules of [call.stockTaken] decide whether an owner released the lock or lost it. No owner loses the
// lock to a command that stores the same value again.
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

// auditOwners emits a change for each owner of a stock lock.
func (c *call) auditOwners(s *stockChange) {
	if s.it.IsString() {
		c.auditOwner(s, s.it.Value())
	} else if h, ok := s.it.Collection().(*collection.Hash); ok {
		c.auditFields(*s, h)
	}
}

// auditFields emits a change for each owner in a hash, up to maxAuditedOwners. If more owners lost the lock, it emits
// one change with their number.
func (c *call) auditFields(s stockChange, h *collection.Hash) {
	if n := holders(h); n > maxAuditedOwners && s.what != event.LockGranted {
		c.auditOwner(&s, "").Count = n
		return
	}
	left := maxAuditedOwners
	h.All(func(name, _ string) bool {
		if c.auditOwner(&s, name) != nil {
			left--
		}
		return left > 0
	})
}

// auditOwner emits a change for one owner, and returns it. It returns nil for the mode in a hash, which is no owner.
func (c *call) auditOwner(s *stockChange, owner string) *event.LockChange {
	if owner == modeField && !s.it.IsString() {
		return nil
	}
	at := c.NowMillis
	if s.reason == locks.Expired {
		at = s.it.DeadlineMillis
	}
	ch := c.addChange(s.what, s.db, s.it.Key(), owner)
	c.setClient(ch, &s.client)
	ch.Stock, ch.AtMillis, ch.HeldMillis = true, c.ToWall(at), max(0, at-s.mark.SinceMillis)
	switch {
	case s.what == event.LockGranted:
		ch.Shared = !s.it.IsString()
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

// auditFlush emits one change for all stock locks of a flushed database for which no change of their own was emitted.
func (c *call) auditFlush(db int) {
	cause := c.requester("")
	ch := c.addChange(event.LocksFlushed, db, "", "")
	ch.Stock, ch.AtMillis = true, c.WallNow()
	setLoss(ch, locks.Flushed, &cause)
}

// addChange adds a change of a lock to those of the entry, and returns it. The caller sets the remaining fields.
// The auditors of all nodes receive the same changes in the same order.
func (c *call) addChange(what string, db int, key, owner string) *event.LockChange {
	n := len(c.LockChanges)
	if n >= maxLockChanges {
		return c.omitChange(&c.LockChanges[n-1])
	}
	c.LockChanges = slices.Grow(c.LockChanges, 1)[:n+1] // which is zero: see listen and dropSince
	ch := &c.LockChanges[n]
	ch.What, ch.DB, ch.Key, ch.Owner = what, db, key, owner
	return ch
}

// setClient stores in ch the client that took or requested the lock.
func (c *call) setClient(ch *event.LockChange, client *locks.Client) {
	if ch.Node, ch.Conn = client.Origin.Node, client.Conn; ch.Conn != 0 {
		ch.Own = client.Origin == c.thisNode
	}
}

// maxLockChanges bounds the emitted changes of an entry, to 30 MB: a script could rename a hash with many owners again
// and again.
const maxLockChanges = 1 << 17

// omitChange counts a change that is not emitted. last is the last change of the entry.
func (c *call) omitChange(last *event.LockChange) *event.LockChange {
	if last.What != event.LocksOmitted {
		c.LockChanges = append(c.LockChanges, event.LockChange{What: event.LocksOmitted})
		last = &c.LockChanges[len(c.LockChanges)-1]
	}
	last.Count++
	c.omitted = event.LockChange{}
	return &c.omitted
}
