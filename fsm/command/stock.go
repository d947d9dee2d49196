package command

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
)

// scratchEvent is the event under way. A call has one for all of its events, so that none is an allocation. Fields that
// are not set for an event stay zero: whoever sets one of the others clears it, as a whole new event each time would cost
// 4 % of a pair.
type scratchEvent struct {
	event locks.Event
	lock  locks.StockLock
}

// IsStockLock reports whether an item is a stock lock. A key that was taken without a time to live is none until it is
// given one.
func IsStockLock(it *keyspace.Item) bool { return it.DeadlineMillis != Never && it.IsMarked() }

// stockEvent is the event under way, of a stock lock or of a key that may have been one.
func (c *Call) stockEvent(kind locks.EventKind, db int, key, owner string, it keyspace.Item) *locks.Event {
	e := &c.scratch.event
	e.Kind, e.Reason, e.DB, e.Key, e.Owner, e.Stock = kind, 0, db, key, owner, &c.scratch.lock
	e.Stock.Item = it
	return e
}

// EndLockEvents lets go of what the last event of an entry told of, which may be large.
func (c *Call) EndLockEvents() { c.scratch = scratchEvent{} }

// EmitNative tells of a native lock what the lock table does not.
func (c *Call) EmitNative(kind locks.EventKind, key, owner string) {
	e := c.stockEvent(kind, c.DB, key, owner, keyspace.Item{})
	e.Stock, e.Client = nil, locks.Client{}
	c.Host.LockEvent(e)
}

// EmitLost tells that all owners of a stock lock have lost it, to time or to a command, which is a cause.
func (c *Call) EmitLost(db int, it *keyspace.Item, reason locks.Reason, causeID uint64) {
	e := c.stockEvent(locks.Lost, db, it.Key(), "", *it)
	e.Reason, e.CauseID = reason, causeID
	c.Host.LockEvent(e)
	e.CauseID = 0
}

// EmitBroken tells that the first of so many owners of a stock lock have lost it by force.
func (c *Call) EmitBroken(it *keyspace.Item, owners []locks.Hold, count int, causeID uint64) {
	e := c.stockEvent(locks.Lost, c.DB, it.Key(), "", *it)
	e.Reason, e.CauseID, e.Stock.Owners, e.Stock.Count = locks.Broken, causeID, owners, count
	c.Host.LockEvent(e)
	e.CauseID, e.Stock.Owners, e.Stock.Count = 0, nil, 0
}

// emitReleased tells that a command removed a key with the mark of a stock lock.
func (c *Call) emitReleased(db int, it *keyspace.Item) {
	if c.Script != nil && IsStockLock(it) {
		c.Script.Released = true
	}
	c.Host.LockEvent(c.stockEvent(locks.Released, db, it.Key(), "", *it))
}

// emitOverwritten tells that next, which is no lock, was stored in the place of a key with the mark of a stock lock.
func (c *Call) emitOverwritten(db int, it, next *keyspace.Item) {
	e := c.stockEvent(locks.Overwritten, db, it.Key(), "", *it)
	e.Stock.Next = *next
	c.Host.LockEvent(e)
	e.Stock.Next = keyspace.Item{}
}

// emitStored tells who audits that next was stored in the place of a key, and one of both may be a stock lock.
func (c *Call) emitStored(db int, it, next *keyspace.Item) {
	e := c.stockEvent(locks.Stored, db, it.Key(), "", *it)
	if next != nil {
		e.Key, e.Stock.Next = next.Key(), *next
	}
	c.Host.LockEvent(e)
	e.Stock.Next = keyspace.Item{}
}

// EmitRefused tells that a client with a token did not get the stock lock that a key may be.
func (c *Call) EmitRefused(it *keyspace.Item, token string) {
	if IsStockLock(it) {
		c.Host.LockEvent(c.stockEvent(locks.Refused, c.DB, it.Key(), token, *it))
	}
}

// EmitClaimed tells that the client has stored a token where nothing was. Without a deadline that is no stock lock yet.
func (c *Call) EmitClaimed(key, token string, deadlineMillis int64) {
	if c.Script != nil {
		c.Script.claims++
	}
	if deadlineMillis != Never {
		c.Host.LockEvent(c.stockEvent(locks.Granted, c.DB, key, token, keyspace.Item{}))
	}
}

// EmitMismatched tells that a command would have released a key for an owner, and found another owner or nothing.
func (c *Call) EmitMismatched(key, owner string) {
	it := c.Keys.Databases[c.DB].Find(c.HashOf(key), key)
	e := c.stockEvent(locks.Mismatched, c.DB, key, owner, keyspace.Item{})
	e.Stock.Ended = it != nil && it.IsMarked() && it.Ended(c.NowMillis) && it.IsString() && it.Value() == owner
	c.Host.LockEvent(e)
	e.Stock.Ended = false
}
