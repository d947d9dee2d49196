// Package command has what every command works with: a [Call], which is the command's view of the keys.
//
// A command looks up an item or a collection ([Call.Find], [Read]), charges for its work before it changes anything
// ([Call.Charge], [Call.Fits]), changes a copy ([Open]) and stores it, and notifies ([Call.Notify]). The Call notes
// the change for WATCH, for the roll-back of scripts and transactions, for clients that wait for the key, and for
// tracking. What only the machine knows, the Call asks of its [Host].
//
// The rooms of the types import this package, and never the machine: fsm/str, fsm/bit, fsm/hash, fsm/list, fsm/set,
// fsm/zset, and fsm/keys for keys of any type. Each has a table Ops of its commands, which the machine joins with the
// rows of protocol.
package command

import (
	"math"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// Call is a command under way, and its view of the keys: the words, the database, the instant. The same Call serves
// many commands, one after another. A command keeps nothing of the Call.
type Call struct {
	Keys *Keys
	Host Host
	DB   int
	Args []string // args[0] is the name; a subcommand's has the container's before

	instant
	// Work is the work of the request so far, and Ceiling bounds it. OverBudget is set if the request has exceeded
	// Ceiling, or would have. The machine then undoes the request, whatever its reply.
	Work, Ceiling int64
	OverBudget    bool
	// Account is the number of the user whose request is under way, 0 without a quota.
	Account int
	Lookups
	// Quiet: no client on this node waits for the replies.
	Quiet bool
	// Reading: other reads may look at the state at the same time.
	Reading bool
	// HasDue is set if a read has looked up a key that is due at NowMillis, but not at the clock of the state. The reply
	// is then void.
	HasDue bool

	Interest event.Interest
	Events   []event.Event
	// LockChanges are what happened to locks in the entry, if somebody audits. The next entry uses the memory again.
	LockChanges []event.LockChange
	// Ended counts the ended keys that the entry removed.
	Ended int
	// OwnSeq is the number of the batch under way, if the batch is this node's.
	OwnSeq uint64
	// Undo notes the changes of the running script or transaction, else Undo is nil.
	Undo *Journal
	// Script is the running script, else nil.
	Script *Script
	// Unserved is the value that a blocking command did not find: see [Call.Wait].
	Unserved Unserved
	// Seed differs from request to request, and Draws counts what [Call.Random] drew in this request.
	Seed, Draws uint64

	scratch scratchEvent

	// hashed is a key and hash the key's hash, since most commands look for a key more than once.
	hashed string
	hash   uint64
}

// Op is what a command does.
type Op func(c *Call) protocol.Value

// With is what a command does that shares f with others, and differs from them by arg.
func With[C, T any](f func(C, T) protocol.Value, arg T) func(C) protocol.Value {
	return func(c C) protocol.Value { return f(c, arg) }
}

// Host is what commands ask of the machine that runs them.
type Host interface {
	// HasLockAt reports whether a key is a lock, or may become one again. If the budget does not suffice to find out, the
	// request is over.
	HasLockAt(db int, key string) bool
	// MayRead reports whether the user of a request may read a key that is not among its words. It charges for that.
	MayRead(key string) bool
	// Full reports whether the state is over the limit of memory.
	Full() bool

	// NewMark is the mark of an item that the client of the request makes now.
	NewMark(deadlineMillis int64) keyspace.Mark
	// LockEvent hands on what happened to a lock. The event is good during the call.
	LockEvent(e *locks.Event)
}

// instant is the time at which a command happens.
type instant struct {
	// NowMillis is cluster time: the clock of the state in an entry, the leader's later estimate in
	// a read.
	NowMillis        int64
	WallOffsetMillis int64
	EntryVersion     byte // of a read: the state's
}

// Find returns the item of key, nil if the key is absent. The pointer is good until the database
// changes; an op that needs the item longer copies it.
func (c *Call) Find(key string) *keyspace.Item {
	it := c.FindIn(c.DB, key)
	if c.Counting {
		c.countLookup(it != nil)
	}
	return it
}

// FindIn is [Call.Find] in another database. The lookup does not count as a hit or a miss.
func (c *Call) FindIn(db int, key string) *keyspace.Item {
	it := c.Keys.Databases[db].Find(c.HashOf(key), key)
	if it == nil {
		if c.Reading && c.Keys.Locks.IsFlushing() { // a queue may be left of a lock that was flushed
			c.noteDueLock(db, key)
		}
		return nil
	}
	if it.Ended(c.NowMillis) {
		c.HasDue = c.HasDue || it.DeadlineMillis >= c.Keys.ClockMillis
		return nil
	}
	if it.IsLock() && c.Reading {
		c.noteDueLock(db, key)
	}
	return it
}

// HashOf is [keyspace.Hash], and remembers the last key.
func (c *Call) HashOf(key string) uint64 {
	if key != c.hashed || key == "" {
		c.hashed, c.hash = key, keyspace.Hash(key)
	}
	return c.hash
}

// NoteDueKeys is [Call.Find] for ops that look at all keys of the database.
func (c *Call) NoteDueKeys() {
	c.HasDue = c.HasDue || c.Keys.Databases[c.DB].EndsBetween(c.Keys.ClockMillis, c.NowMillis)
	c.NoteDueLocks()
}

// Ascend is [keyspace.Keyspace.Ascend] in the call's database. It ends early when the request is over its
// budget, which the caller asks [Call.Fits] about: a script could pass a million ended items again and
// again.
func (c *Call) Ascend(fromHash uint64, f func(it *keyspace.Item) bool) {
	d := c.Keys.Databases[c.DB]
	most := max(0, (c.Ceiling-c.Work)/endedWork)
	dead := d.Ascend(fromHash, c.NowMillis, int(min(most, math.MaxInt)), f)
	c.Spend(int64(dead) * endedWork)
}

// Set gives key a value and a deadline.
func (c *Call) Set(key, value string, deadlineMillis int64) {
	c.Store(c.DB, c.NewItem(key, value, deadlineMillis, keyspace.EncodingAuto))
}

// NewItem makes an item that shares no memory with the log entry, and charges for the copy.
func (c *Call) NewItem(key, value string, deadlineMillis int64, e keyspace.Encoding) keyspace.Item {
	c.Spend(int64(len(key) + len(value)))
	return keyspace.NewItem(c.HashOf(key), key, value, deadlineMillis, e)
}

// Store stores an item in the place of the former item of the key. An item that has ended already
// is not stored and the key is removed: the item came and went.
func (c *Call) Store(db int, it keyspace.Item) {
	if it.Ended(c.NowMillis) {
		c.storeEnded(db, &it)
		return
	}
	before := c.put(db, &it)
	if c.Interest&event.InLocks != 0 && (before.IsMarked() || it.IsMarked()) {
		c.emitStored(db, &before, &it)
	}
}

// put stores an item, and returns the one that was there. The owners of a stock lock are as before.
func (c *Call) put(db int, it *keyspace.Item) (before keyspace.Item) {
	it.SetVersion(c.Keys.NextVersion())
	d := c.Keys.Databases[db]
	if c.Account != 0 || d.HasAccounts() {
		c.countFor(d, it)
	}
	c.Keys.ItemBytes -= d.Bytes()
	before, replaced := d.Put(it)
	c.Keys.ItemBytes += d.Bytes()
	if !replaced || before.Ended(c.NowMillis) {
		c.noteNewKey(db, it)
		c.noteCreated(db, it, &before, replaced)
	} else if before.IsMarked() && !it.IsMarked() {
		c.emitOverwritten(db, &before, it)
	}
	// A collection that was changed in place has been noted since the last savepoint.
	if c.Undo != nil && !(it.Shares(&before) && it.OwnedBy(c.Keys.Generation)) {
		c.Undo.Note(Change{Database: d, Item: *it, Before: before, Replaced: replaced})
	}
	if c.Interest&event.InChanges != 0 {
		c.emitChanged(db, it.Key())
	}
	c.noteKey(db, it.Key())
	return before
}

func (c *Call) storeEnded(db int, it *keyspace.Item) {
	if old := c.FindIn(db, it.Key()); old != nil {
		c.RemoveFrom(db, old)
	} else {
		it.SetVersion(c.Keys.NextVersion())
		c.noteNewKey(db, it)
		c.NotifyIn(db, event.ClassNew, "new", it.Key())
	}
}

// Remove takes out an item that [Call.Find] returned. The pointer is invalid afterwards.
func (c *Call) Remove(it *keyspace.Item) { c.RemoveFrom(c.DB, it) }

func (c *Call) RemoveFrom(db int, it *keyspace.Item) {
	if removed := c.TakeOut(db, it); removed.IsMarked() {
		c.emitReleased(db, &removed)
	}
}

// TakeOut is [Call.RemoveFrom], and says nothing of stock locks but to who audits. It returns the item as the caller
// has it: whether a changed collection is the stored one is up to this node's snapshots.
func (c *Call) TakeOut(db int, it *keyspace.Item) (removed keyspace.Item) {
	removed = *it
	d := c.Keys.Databases[db]
	c.Keys.ItemBytes -= d.Bytes()
	before := d.Remove(it.Hash, it.Key())
	c.Keys.ItemBytes += d.Bytes()
	if c.Undo != nil {
		c.Undo.Note(Change{Database: d, Before: before, Replaced: true})
	}
	if c.Interest&event.InChanges != 0 {
		c.emitChanged(db, before.Key())
	}
	if c.Interest&event.InLocks != 0 && removed.IsMarked() {
		c.emitStored(db, &removed, nil)
	}
	return removed
}

// ReplaceDatabase puts d in the place of a database.
func (c *Call) ReplaceDatabase(db int, d *keyspace.Keyspace) {
	c.Spend(databaseWork)
	if c.Undo != nil {
		c.Undo.Note(Change{Database: c.Keys.Databases[db], Number: db, Whole: true})
	}
	c.Keys.ItemBytes += d.Bytes() - c.Keys.Databases[db].Bytes()
	c.Keys.Databases[db] = d
}

// SwapDatabases exchanges two databases.
func (c *Call) SwapDatabases(a, b int) {
	first, second := c.Keys.Databases[a], c.Keys.Databases[b]
	c.ReplaceDatabase(a, second)
	c.ReplaceDatabase(b, first)
	c.noteSwap(a, b)
	c.EmitDatabase(event.Swapped, a, b)
	if c.Interest&event.InLocks != 0 && a != b && first.Marks()+second.Marks() > 0 {
		c.LockChanges = append(c.LockChanges, event.LockChange{
			What: event.LocksSwapped, Stock: true, DB: a, Other: b, AtMillis: c.WallNow(),
		})
	}
	c.Keys.Waits.WakeAll(a)
	c.Keys.Waits.WakeAll(b)
}

// countFor sets the account of an item that is about to be stored: a key counts for the user who created it, also
// after another user changed, renamed or moved it.
func (c *Call) countFor(d *keyspace.Keyspace, it *keyspace.Item) {
	if it.Account() != 0 {
		return
	}
	if before := d.Find(it.Hash, it.Key()); before != nil && !before.Ended(c.NowMillis) {
		it.SetAccount(before.Account())
	} else {
		it.SetAccount(c.Account)
	}
}

// noteCreated records that a key was created. If the key replaced an expired key, that key's removal is recorded first.
func (c *Call) noteCreated(db int, it, before *keyspace.Item, replaced bool) {
	if replaced {
		c.NoteExpired(db, before)
	}
	if c.Script != nil && it.Kind() == keyspace.KindHash {
		c.Script.noteHash(db, it)
	}
	c.NotifyIn(db, event.ClassNew, "new", it.Key())
}

// NoteExpired counts the removal of the item of an expired key, and emits its events.
func (c *Call) NoteExpired(db int, it *keyspace.Item) {
	c.Ended++
	if it.IsMarked() {
		c.EmitLost(db, it, locks.Expired, 0)
	}
	c.NotifyIn(db, event.ClassExpired, "expired", it.Key())
	if c.Interest&event.InChanges != 0 {
		c.emitChanged(db, it.Key())
	}
}

// noteKey notes that a key got a value. A client may wait for that.
func (c *Call) noteKey(db int, key string) {
	if c.Keys.Waits.Len() > 0 {
		c.Keys.Waits.Wake(db, key)
	}
}

// Journal notes the changes of a script or a transaction, to undo them. A change is small: items share
// their data, and databases are replaced whole.
type Journal struct {
	Changes []Change
	NewKeys []notedVersion
}

// Change is the change of an item, or of a whole database.
type Change struct {
	Database *keyspace.Keyspace // the changed database, or the replaced one
	Whole    bool
	Number   int  // of the replaced database
	Replaced bool // an item was there before
	Before   keyspace.Item
	Item     keyspace.Item // what came there where nothing was
	Locks    *locks.Table  // the lock table from before, if the change is of that
}

// notedVersion is what stood in a place of [NewKeyVersions].
type notedVersion struct {
	Place   uint16
	Version uint64
}

func (j *Journal) Note(ch Change) { j.Changes = append(j.Changes, ch) }

func (j *Journal) noteNewKey(place uint16, before uint64) {
	j.NewKeys = append(j.NewKeys, notedVersion{place, before})
}
