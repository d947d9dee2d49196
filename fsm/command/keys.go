package command

import (
	"math"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// Keys is the part of the replicated state that commands read and change.
type Keys struct {
	// ClockMillis is T, the cluster time: the largest stamp applied so far.
	ClockMillis int64
	// Versions counts the items stored so far, also items that had ended at once, and the swaps of
	// databases.
	Versions  uint64
	Databases [protocol.MaxDatabases]*keyspace.Keyspace
	Waits     *waits.Table
	Locks     *locks.Table
	// Swaps are the versions at which the databases were last swapped.
	Swaps   [protocol.MaxDatabases]uint64
	NewKeys NewKeyVersions
	// Generation is counted up when items are kept: by a capture, or for a roll-back. Collections of an
	// older generation are not changed in place: see [keyspace.Object]. The number is this node's own
	// and shows nowhere.
	Generation uint64
	// ItemBytes is what the items of all databases count for.
	ItemBytes int64
	// Notifies are the settings of notify-keyspace-events.
	Notifies event.Classes
}

// NextVersion gives out a version.
func (ks *Keys) NextVersion() uint64 {
	ks.Versions++
	return ks.Versions
}

// NewKeyVersions remembers, by a hash of database and key, the version at which a new key came last:
// a key that had not been there. EXEC needs it for a key that was missing at WATCH and is missing
// again. Two keys can share a place; EXEC may then fail without cause, which is allowed.
type NewKeyVersions [1 << 14]uint64

// Place is the index for a key.
func (vs *NewKeyVersions) Place(db int, hash uint64) uint16 {
	return uint16((hash + uint64(db)) % uint64(len(vs)))
}

// Count is the number of places with a version.
func (vs *NewKeyVersions) Count() (n uint64) {
	for _, version := range vs {
		if version != 0 {
			n++
		}
	}
	return n
}

// noteNewKey notes that an item came where nothing was.
func (c *Call) noteNewKey(db int, it *keyspace.Item) {
	place := c.Keys.NewKeys.Place(db, it.Hash)
	if c.Undo != nil {
		c.Undo.noteNewKey(place, c.Keys.NewKeys[place])
	}
	c.Keys.NewKeys[place] = it.Version()
}

// noteSwap notes that two databases were exchanged. A swap takes a version, as a store does.
func (c *Call) noteSwap(a, b int) {
	if a == b {
		return
	}
	version := c.Keys.NextVersion()
	c.Keys.Swaps[a], c.Keys.Swaps[b] = version, version
}

// HasLocks reports whether there is any lock. If not, only sessions can be due.
func (c *Call) HasLocks() bool { return c.Keys.Locks.Len() > 0 }

// noteDueLock is for a read that meets a lock: what is due there by the read's instant has to be in the log first.
func (c *Call) noteDueLock(db int, key string) {
	c.HasDue = c.HasDue || c.Keys.Locks.HasDue(db, key, c.NowMillis)
}

// NoteDueLocks sets HasDue for a read of all locks and sessions if the read's instant is later than the state's clock,
// and an event of a lock or a session is due at that instant. At the state's clock, a lock shows as it is until its
// event runs.
func (c *Call) NoteDueLocks() {
	c.HasDue = c.HasDue ||
		c.Reading && c.Keys.ClockMillis < c.NowMillis && c.Keys.Locks.HasAnyDue(c.NowMillis)
}

// LeaseUntil is the time until a deadline, 0 for never.
func (c *Call) LeaseUntil(deadlineMillis int64) int64 {
	if deadlineMillis == Never {
		return 0
	}
	return max(1, SaturatingAdd(deadlineMillis, -c.NowMillis))
}

// Renewed is the mark of an item that is given another deadline. The first lease of a key that was taken without
// one is no renewal.
func (c *Call) Renewed(m keyspace.Mark, deadlineMillis int64) keyspace.Mark {
	if m.LeaseMillis != 0 {
		m.Renewals++
	}
	m.LeaseMillis = c.LeaseUntil(deadlineMillis)
	return m
}

// remarked is an item that is about to get another deadline, with the mark that it has then.
func (c *Call) remarked(it *keyspace.Item, deadlineMillis int64) keyspace.Item {
	if deadlineMillis != Never && deadlineMillis < c.NowMillis {
		return *it
	}
	if m, ok := it.Mark(); ok {
		return it.WithMark(c.Renewed(m, deadlineMillis))
	}
	if deadlineMillis != Never && c.Script != nil && it.Kind() == keyspace.KindHash && c.Script.hasCreated(c.DB, it) {
		c.Script.tookHash = true
		c.Host.LockEvent(c.stockEvent(locks.Granted, c.DB, it.Key(), "", *it))
		return it.WithMark(c.Host.NewMark(deadlineMillis))
	}
	return *it
}

// LockDeadline is the deadline of a lock's longest hold. It is never if the hold is bound to a session, or if there is
// no hold.
func (c *Call) LockDeadline(key string) int64 {
	left, ok := c.Keys.Locks.LeaseLeftMillis(c.DB, key, c.NowMillis)
	if !ok || left < 0 {
		return Never
	}
	return SaturatingAdd(c.NowMillis, left)
}

// SwapsLocks reports whether one of two databases has locks, or may have.
func (c *Call) SwapsLocks(a, b int) bool {
	if a == b {
		return false
	}
	due, ok := c.Keys.Locks.NextDue()
	return c.Keys.Locks.HasLocks(a) || c.Keys.Locks.HasLocks(b) || ok && due <= c.NowMillis
}

// Position is the place of an item in scans.
func Position(it *keyspace.Item) uint64 { return it.Hash >> CursorShift }

// DatabaseNumber reads the number of a database.
func DatabaseNumber(word string) (db int, problem protocol.Value, ok bool) {
	n, ok := protocol.ParseInt(word)
	switch {
	case !ok:
		return 0, ErrNotInteger, false
	case n < math.MinInt32 || n > math.MaxInt32:
		return 0, protocol.Err("value is out of range, value must between -2147483648 and 2147483647"), false
	case n < 0 || n >= protocol.MaxDatabases:
		return 0, ErrDBRange, false
	}
	return int(n), problem, true
}
