package command

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
)

// scratchEvent is the memory of the current event. A call reuses it for all its events, so that an event allocates
// nothing. A function that sets further fields must clear them afterwards: to clear the whole event each time cost 4 %
// of an acquire and release.
type scratchEvent struct {
	event locks.Event
	lock  locks.StockLock
}

// IsStockLock reports whether an item is a stock lock. A key that was taken without a ttl is none until it gets one.
func IsStockLock(it *keyspace.Item) bool { return it.DeadlineMillis != Never && it.IsMarked() }

// stockEvent returns an event of a stock lock, or of a key that may have been one.
func (c *Call) stockEvent(kind locks.EventKind, db int, key, owner string, it keyspace.Item) *locks.Event {
	e := &c.scratch.event
	e.Kind, e.Reason, e.DB, e.Key, e.Owner, e.Stock = kind, 0, db, key, owner, &c.scratch.lock
	e.Stock.Item = it
	return e
}

// EndLockEvents drops the last event of an entry, since the event may refer to a large item.
func (c *Call) EndLockEvents() { c.scratch = scratchEvent{} }

// EmitNative emits an event of a native lock that the lock table does not emit.
func (c *Call) EmitNative(kind locks.EventKind, key, owner string) {
	e := c.stockEvent(kind, c.DB, key, owner, keyspace.Item{})
	e.Stock, e.Client = nil, locks.Client{}
	c.Host.LockEvent(e)
}

// EmitLost emits that all owners of a stock lock have lost it. causeID is 0 if no command ended the lock.
func (c *Call) EmitLost(db int, it *keyspace.Item, reason locks.Reason, causeID uint64) {
	e := c.stockEvent(locks.Lost, db, it.Key(), "", *it)
	e.Reason, e.CauseID = reason, causeID
	c.Host.LockEvent(e)
	e.CauseID = 0
}

// EmitBroken emits that count owners of a stock lock have lost it by force. owners has the first of them.
func (c *Call) EmitBroken(it *keyspace.Item, owners []locks.Hold, count int, causeID uint64) {
	e := c.stockEvent(locks.Lost, c.DB, it.Key(), "", *it)
	e.Reason, e.CauseID, e.Stock.Owners, e.Stock.Count = locks.Broken, causeID, owners, count
	c.Host.LockEvent(e)
	e.CauseID, e.Stock.Owners, e.Stock.Count = 0, nil, 0
}

// emitReleased emits that a command removed a marked key.
func (c *Call) emitReleased(db int, it *keyspace.Item) {
	if c.Script != nil && IsStockLock(it) {
		c.Script.Released = true
	}
	c.Host.LockEvent(c.stockEvent(locks.Released, db, it.Key(), "", *it))
}

// emitOverwritten emits that a command replaced a marked key by next, which has no mark.
func (c *Call) emitOverwritten(db int, it, next *keyspace.Item) {
	e := c.stockEvent(locks.Overwritten, db, it.Key(), "", *it)
	e.Stock.Next = *next
	c.Host.LockEvent(e)
	e.Stock.Next = keyspace.Item{}
}

// emitStored emits, for audits, that a command replaced it by next or removed it. One of the two has a mark.
func (c *Call) emitStored(db int, it, next *keyspace.Item) {
	e := c.stockEvent(locks.Stored, db, it.Key(), "", *it)
	if next != nil {
		e.Key, e.Stock.Next = next.Key(), *next
	}
	c.Host.LockEvent(e)
	e.Stock.Next = keyspace.Item{}
}

// EmitRefused emits, if the item is a stock lock, that a client did not get the lock. token is the value that the client
// tried to store.
func (c *Call) EmitRefused(it *keyspace.Item, token string) {
	if IsStockLock(it) {
		c.Host.LockEvent(c.stockEvent(locks.Refused, c.DB, it.Key(), token, *it))
	}
}

// EmitClaimed emits that the client stored a token at a missing key. Without a deadline the key is no stock lock yet.
func (c *Call) EmitClaimed(key, token string, deadlineMillis int64) {
	if c.Script != nil {
		c.Script.claims++
	}
	if deadlineMillis != Never {
		c.Host.LockEvent(c.stockEvent(locks.Granted, c.DB, key, token, keyspace.Item{}))
	}
}

// EmitMismatched emits that a command did not release a key for an owner: the key was missing, or had another owner.
func (c *Call) EmitMismatched(key, owner string) {
	it := c.Keys.Databases[c.DB].Find(c.HashOf(key), key)
	e := c.stockEvent(locks.Mismatched, c.DB, key, owner, keyspace.Item{})
	e.Stock.Ended = it != nil && it.IsMarked() && it.Ended(c.NowMillis) && it.IsString() && it.Value() == owner
	c.Host.LockEvent(e)
	e.Stock.Ended = false
}
