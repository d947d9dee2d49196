package fsm

import (
	"slices"
	"strings"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/hash"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// An owner loses a stock lock when the lease of the lock ends, when a command flushes its database, when LOCK.BREAK
// breaks the lock, and when a command of another client removes or overwrites the key: see [call.stockTaken].

// recordStockLoss adds the losses of a stock lock to the history. It ignores events by which no owner loses a lock.
func (c *call) recordStockLoss(e *locks.Event) {
	it, next := &e.Stock.Item, &e.Stock.Next
	switch {
	case e.Kind == locks.Lost && e.Reason == locks.Broken:
		c.noteStockLosses(e.DB, it, e.Stock.Owners, e.Stock.Count, e.Reason, e.CauseID)
	case e.Kind == locks.Lost:
		c.stockLost(e.DB, it, e.Reason, e.CauseID)
	case e.Kind == locks.Released && command.IsStockLock(it),
		// A command that changes a string instead of replacing it, such as INCR, takes the lock from nobody.
		e.Kind == locks.Overwritten && c.lastBinding.overwrites && command.IsStockLock(it) &&
			!(next.IsString() && it.IsString() && next.Value() == it.Value()):
		c.stockTaken(e.DB, it)
	}
}

// stockLost records that all owners of a stock lock have lost the lock.
func (c *call) stockLost(db int, it *keyspace.Item, reason locks.Reason, causeID uint64) {
	if it.IsString() {
		c.noteStockLoss(db, it, it.Value(), reason, causeID)
		return
	}
	owners, count := stockOwners(it, maxSimilarLosses)
	c.noteStockLosses(db, it, owners, count, reason, causeID)
}

// noteStockLosses records that count owners have lost a stock lock. owners has the first of them; the others are only
// counted.
func (c *call) noteStockLosses(db int, it *keyspace.Item, owners []locks.Hold, count int, reason locks.Reason,
	causeID uint64,
) {
	for i := range owners {
		c.noteStockLoss(db, it, owners[i].Owner, reason, causeID)
	}
	if count > len(owners) {
		c.st.history.kinds[stockLocks].list(reason).left += uint64(count - len(owners))
	}
}

// noteStockLoss records that one owner has lost a stock lock.
func (c *call) noteStockLoss(db int, it *keyspace.Item, owner string, reason locks.Reason, causeID uint64) {
	loss := lockLoss{kind: stockLocks, causeID: causeID, atMillis: c.NowMillis, reason: reason}
	if reason == locks.Expired {
		loss.atMillis = it.DeadlineMillis
	}
	if c.keepHistory(); c.st.history.leavesOut(&loss) {
		return
	}
	m, _ := it.Mark()
	loss.sinceMillis, loss.wallOffset, loss.client = m.SinceMillis, c.st.wallOffsetMillis, c.markedBy(&m)
	loss.db, loss.key, loss.owner = db, it.Key(), owner
	if !it.IsString() || len(loss.key) > maxLostKeyBytes || len(owner) > locks.MaxText {
		// Other texts may share the memory of the item, which is hardly larger than key and owner.
		loss.key = strings.Clone(shortText(loss.key, maxLostKeyBytes))
		loss.owner = strings.Clone(shortText(owner, locks.MaxText))
	}
	c.st.history.add(loss)
}

// markedBy returns the client that took a stock lock, or the zero Client if it is unknown.
func (c *call) markedBy(m *keyspace.Mark) (client locks.Client) {
	if o, known := c.st.incarnations.origin(m.Incarnation); known && m.Conn != 0 {
		client = locks.Client{Origin: o, Conn: int64(m.Conn)}
	}
	return client
}

// stockTaken records that a command has removed or overwritten a stock lock, as a loss of each owner that has not
// released the lock by this command. An owner has, if the command comes from the connection that took the lock, if the
// transaction watches the key, or if the command names the owner.
func (c *call) stockTaken(db int, it *keyspace.Item) {
	if m, _ := it.Mark(); c.isTaker(&m) || c.watches(db, it.Key()) || it.IsString() && c.names(it.Value()) {
		return
	}
	owners, count := stockOwners(it, maxSimilarLosses)
	all := len(owners)
	if owners = slices.DeleteFunc(owners, func(h locks.Hold) bool { return c.names(h.Owner) }); len(owners) > 0 {
		c.noteStockLosses(db, it, owners, count-all+len(owners), locks.Broken, c.recordStockCause())
	}
}

// isTaker reports whether the current command comes from the connection that took a stock lock.
func (c *call) isTaker(m *keyspace.Mark) bool {
	if m.Conn == 0 || m.Conn != c.conn {
		return false
	}
	o, known := c.st.incarnations.origin(m.Incarnation)
	return known && o == c.origin
}

// maxComparedWords bounds the words of a script, and the watched keys of a transaction, that names and watches compare.
const maxComparedWords = 16

// names reports whether the current string command, or the current script, has the owner as an argument. A holder
// releases a stock lock by such a compare-and-delete. Other commands name no owner: the arguments of DEL are keys.
func (c *call) names(owner string) bool {
	if c.Script != nil {
		words := c.scripts.env.Args
		return slices.Contains(words[:min(maxComparedWords, len(words))], owner)
	}
	if c.lastBinding.row == nil || c.lastBinding.row.Group != protocol.GroupString {
		return false
	}
	return slices.Contains(c.Args[min(2, len(c.Args)):], owner)
}

// watches reports whether the current transaction watches a key. A client that watches a key before it deletes the key
// counts as the holder, since it has compared the owner meanwhile.
func (c *call) watches(db int, key string) bool {
	var w protocol.Watch
	rest := c.watched
	for range maxComparedWords {
		var err error
		if rest == "" {
			return false
		}
		if rest, err = protocol.NextWatch(rest, &w); err != nil {
			return false
		}
		if w.DB == db && w.Key == key {
			return true
		}
	}
	return false
}

// recordStockCause returns the id of the current request as the cause of losses of stock locks. It records one cause
// for all losses by the request.
func (c *call) recordStockCause() uint64 {
	if c.stockCauseID == 0 {
		c.stockCauseID = c.recordCause(stockLocks, "")
		c.losses(stockLocks).trimCauses()
	}
	return c.stockCauseID
}

// maxFlushedKeys bounds the keys of a flushed database that flushStock searches for stock locks.
const maxFlushedKeys = 10_000

// flushStock emits the losses of the stock locks of a flushed database. It searches the first maxFlushedKeys keys, and
// only counts the remaining stock locks.
func (c *call) flushStock(db int) {
	d := c.st.Databases[db]
	if d.Marks() == 0 {
		return
	}
	marks, looked := d.Marks(), 0
	d.Ascend(0, c.NowMillis, maxFlushedKeys, func(it *keyspace.Item) bool {
		looked++
		if it.IsMarked() {
			marks--
		}
		if command.IsStockLock(it) {
			c.EmitLost(db, it, locks.Flushed, c.recordStockCause())
		}
		return looked < maxFlushedKeys && marks > 0
	})
	if looked == maxFlushedKeys && c.stockCauseID != 0 {
		c.st.history.kinds[stockLocks].byForce.left += uint64(marks)
	}
	if marks > 0 && c.Interest&event.InLocks != 0 {
		c.auditFlush(db)
	}
	c.Spend(int64(looked) * command.KeyWork)
}

// noteDueStockLocks is [Call.NoteDueKeys] for all databases that have stock locks: it sets HasDue if a key ends before
// the read.
func (c *call) noteDueStockLocks() {
	for _, d := range c.st.Databases {
		if c.Reading && d.Marks() > 0 {
			c.HasDue = c.HasDue || d.EndsBetween(c.st.ClockMillis, c.NowMillis)
		}
	}
}

var errStockDelay = protocol.Err("a stock lock has no delay")

// breakStock runs LOCK.BREAK for a stock lock. The option FENCE matches no stock lock, since these have no fences.
func (c *call) breakStock(b *locks.Break, text string) protocol.Value {
	it := c.Find(b.Key)
	switch {
	case it == nil || !it.IsMarked():
		return command.ErrWrongType
	case b.OverridesDelay:
		return errStockDelay
	case b.Fence != 0:
		return command.Zero
	}
	owners, count := stockOwners(it, maxSimilarLosses)
	if b.ByOwner {
		if !holdsStock(it, b.Owner) {
			return command.Zero
		}
		owner := b.Owner
		if it.IsString() {
			owner = it.Value() // an equal text that does not keep the request in memory
		}
		owners, count = []locks.Hold{{Owner: owner}}, 1
	}
	if !c.Fits(lockWork) {
		return command.ErrOverWork
	}
	c.Spend(lockWork)
	was := *it
	if h, ok := was.Collection().(*collection.Hash); ok && b.ByOwner && holders(h) > 1 {
		e, problem, ok := hash.OpenHash(&c.Call, 1, 0)
		if !ok {
			return problem
		}
		e.V.Remove(b.Owner)
		e.KeepAs(event.ClassHash, "hdel")
	} else {
		c.breaking = true
		c.TakeOut(c.DB, it)
		c.breaking = false
		c.Notify(event.ClassGeneric, "del", b.Key)
		c.notifyRedisson(&was)
	}
	c.EmitBroken(&was, owners, count, c.recordCause(stockLocks, text))
	c.losses(stockLocks).trimCauses()
	c.locked.Breaks++
	c.notifyBroken(&was, owners, count, text)
	return protocol.Integer(int64(count))
}

// notifyBroken emits the broken holds to the node of the client that sent the LOCK.BREAK, for the log of the node.
func (c *call) notifyBroken(was *keyspace.Item, owners []locks.Hold, count int, text string) {
	m, _ := was.Mark()
	c.broken = nil
	for i := range owners {
		c.broken = append(c.broken, event.BrokenHold{
			Key: was.Key(), Owner: owners[i].Owner, SinceMillis: c.ToWall(m.SinceMillis), Client: showClient(c.markedBy(&m)),
		})
	}
	c.forced(was.Key(), 1, event.Forced{Text: text, Holds: count})
}

// notifyRedisson publishes the message by which Redisson's own forced unlock wakes waiting clients.
func (c *call) notifyRedisson(was *keyspace.Item) {
	if !was.IsString() && c.Interest&event.InMessages != 0 {
		c.Events = append(c.Events, event.Event{
			Kind: event.Published, Name: "redisson_lock__channel:{" + was.Key() + "}",
			Payload: "0",
		})
	}
}
