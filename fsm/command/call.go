// Package command has what all commands use: a [Call], which gives a command access to the keys.
//
// A command looks up an item or a collection ([Call.Find], [Read]), charges for its work before it changes anything
// ([Call.Charge], [Call.Fits]), changes a copy ([Open]) and stores it, and notifies ([Call.Notify]). The Call records
// the change for WATCH, for the roll-back of scripts and transactions, for clients that wait for the key, and for
// tracking. The machine implements [Host], the calls that need more than the keys.
//
// The packages of the types import this package, but never the machine: fsm/str, fsm/bit, fsm/hash, fsm/list, fsm/set,
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

// Call gives the current command access to the keys. One Call serves many commands, one after another. A command must
// not keep it.
type Call struct {
	Keys *Keys
	Host Host
	DB   int
	Args []string // Args[0] is the name, such as "get" or "script|load"

	instant
	// Work is the work of the request so far, and Ceiling bounds it. OverBudget is set if the request has exceeded
	// Ceiling, or would have. The machine then undoes the request, whatever its reply.
	Work, Ceiling int64
	OverBudget    bool
	// Account is the number of the user who sent the request, or 0 if the user has no quota.
	Account int
	Lookups
	// Quiet is set if no client of this node waits for the replies.
	Quiet bool
	// Reading is set in a read. Other reads may read the state at the same time.
	Reading bool
	// HasDue is set if a read has looked up a key that is due at NowMillis, but not at the clock of the state. The reply
	// is then void.
	HasDue bool

	Interest event.Interest
	Events   []event.Event
	// LockChanges has the changes of locks in the entry, for the auditors of this node. The next entry reuses its memory.
	LockChanges []event.LockChange
	// Ended counts the expired keys that the entry removed.
	Ended int
	// OwnSeq is the number of the current batch if this node made the batch, or 0.
	OwnSeq uint64
	// Undo records the changes of the current script or transaction. It is nil outside of these.
	Undo *Journal
	// Script is the current script, or nil.
	Script *Script
	// Unserved is what a blocking command waits for: see [Call.Wait].
	Unserved Unserved
	// Seed differs between requests. Draws counts the numbers that [Call.Random] returned in this request.
	Seed, Draws uint64

	scratch scratchEvent

	// hashed is the key that was hashed last, and hash its hash. Most commands look up a key more than once.
	hashed string
	hash   uint64
}

// Op is the function of a command. It returns the reply.
type Op func(c *Call) protocol.Value

// With returns the Op of a command that shares f with other commands. arg selects the command.
func With[C, T any](f func(C, T) protocol.Value, arg T) func(C) protocol.Value {
	return func(c C) protocol.Value { return f(c, arg) }
}

// Host is the machine that runs commands. It is an interface since the machine imports this package.
type Host interface {
	// HasLockAt settles a key, and reports whether it is a lock then. If the budget does not suffice, it sets OverBudget
	// and reports true.
	HasLockAt(db int, key string) bool
	// MayRead reports whether the user may read a key that is not among the words of the request. It charges for the
	// check.
	MayRead(key string) bool
	// Full returns why the state must not grow, or nil.
	Full() *protocol.Error

	// NewMark returns a mark for an item that the client of the request stores.
	NewMark(deadlineMillis int64) keyspace.Mark
	// LockEvent passes an event to the observers of locks. The event is valid during the call.
	LockEvent(e *locks.Event)
}

// instant is the time of a command.
type instant struct {
	// NowMillis is cluster time: the clock of the state in an entry, and the leader's later estimate in a read.
	NowMillis        int64
	WallOffsetMillis int64
	EntryVersion     byte // in a read, the version of the state
}

// Find returns the item of a key, or nil if the key is missing. The pointer is valid until the database changes.
func (c *Call) Find(key string) *keyspace.Item {
	it := c.FindIn(c.DB, key)
	if c.Counting {
		c.countLookup(it != nil)
	}
	return it
}

// FindIn is [Call.Find] for any database. It counts no hit or miss.
func (c *Call) FindIn(db int, key string) *keyspace.Item {
	it := c.Keys.Databases[db].Find(c.HashOf(key), key)
	if it == nil {
		if c.Reading && c.Keys.Locks.IsFlushing() { // the flushed lock may have a queue
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

// HashOf is [keyspace.Hash] with a cache of one key.
func (c *Call) HashOf(key string) uint64 {
	if key != c.hashed || key == "" {
		c.hashed, c.hash = key, keyspace.Hash(key)
	}
	return c.hash
}

// NoteDueKeys sets HasDue for a read of all keys of the database.
func (c *Call) NoteDueKeys() {
	c.HasDue = c.HasDue || c.Keys.Databases[c.DB].EndsBetween(c.Keys.ClockMillis, c.NowMillis)
	c.NoteDueLocks()
}

// Ascend is [keyspace.Keyspace.Ascend] in the database of the call. It ends early if the request exceeds its budget,
// since a script could pass a million expired items again and again; the caller then checks [Call.Fits].
func (c *Call) Ascend(fromHash uint64, f func(it *keyspace.Item) bool) {
	d := c.Keys.Databases[c.DB]
	most := max(0, (c.Ceiling-c.Work)/endedWork)
	dead := d.Ascend(fromHash, c.NowMillis, int(min(most, math.MaxInt)), f)
	c.Spend(int64(dead) * endedWork)
}

// Set stores a string with a deadline at a key.
func (c *Call) Set(key, value string, deadlineMillis int64) {
	c.Store(c.DB, c.NewItem(key, value, deadlineMillis, keyspace.EncodingAuto))
}

// NewItem returns an item that shares no memory with the log entry, and charges for the copy.
func (c *Call) NewItem(key, value string, deadlineMillis int64, e keyspace.Encoding) keyspace.Item {
	c.Spend(int64(len(key) + len(value)))
	return keyspace.NewItem(c.HashOf(key), key, value, deadlineMillis, e)
}

// Store replaces the item of the item's key. If the new item has expired already, Store removes the key instead.
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

// put stores an item, and returns the item that it replaced. It emits no Stored event.
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
	// A collection that was changed in place has been recorded since the last savepoint.
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

// Remove removes an item that [Call.Find] returned. The pointer is invalid afterwards.
func (c *Call) Remove(it *keyspace.Item) { c.RemoveFrom(c.DB, it) }

func (c *Call) RemoveFrom(db int, it *keyspace.Item) {
	if removed := c.TakeOut(db, it); removed.IsMarked() {
		c.emitReleased(db, &removed)
	}
}

// TakeOut is [Call.RemoveFrom] without the Released event of a stock lock. It returns a copy of *it, and not the stored
// item: snapshots of this node decide whether a changed collection is the stored one.
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

// ReplaceDatabase replaces a database by d.
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

// countFor sets the account of an item that is about to be stored. A key counts for the user who created it, even if
// another user has changed, renamed or moved it.
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

// noteKey wakes the clients that wait for a value at a key.
func (c *Call) noteKey(db int, key string) {
	if c.Keys.Waits.Len() > 0 {
		c.Keys.Waits.Wake(db, key)
	}
}

// Journal records the changes of a script or a transaction for a roll-back. A change is small, since items share their
// data, and databases are recorded as a whole.
type Journal struct {
	Changes []Change
	NewKeys []notedVersion
}

// Change is a change of an item, of a whole database, or of the lock table.
type Change struct {
	Database *keyspace.Keyspace // the database that has changed, or that was replaced
	Whole    bool
	Number   int  // the number of the replaced database
	Replaced bool // there was an item before
	Before   keyspace.Item
	Item     keyspace.Item // the new item, if there was none before
	Locks    *locks.Table  // the lock table before the change, if the change is of the table
}

// notedVersion is the former version at an index of [NewKeyVersions].
type notedVersion struct {
	Place   uint16
	Version uint64
}

func (j *Journal) Note(ch Change) { j.Changes = append(j.Changes, ch) }

func (j *Journal) noteNewKey(place uint16, before uint64) {
	j.NewKeys = append(j.NewKeys, notedVersion{place, before})
}
