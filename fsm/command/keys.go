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
	// ClockMillis is the cluster time: the largest stamp of all applied entries.
	ClockMillis int64
	// Versions is the last version that was issued. Each stored item gets one, even if it had expired, and so does each
	// swap of databases.
	Versions  uint64
	Databases [protocol.MaxDatabases]*keyspace.Keyspace
	Waits     *waits.Table
	Locks     *locks.Table
	// Swaps has the version of the last swap of each database.
	Swaps   [protocol.MaxDatabases]uint64
	NewKeys NewKeyVersions
	// Generation increases when a capture or a savepoint starts to share items. Collections of older generations are not
	// changed in place: see [keyspace.Object]. The number is private to this node.
	Generation uint64
	// ItemBytes is the estimated memory of all items.
	ItemBytes int64
	// Notifies is the setting notify-keyspace-events.
	Notifies event.Classes
}

// NextVersion issues a version.
func (ks *Keys) NextVersion() uint64 {
	ks.Versions++
	return ks.Versions
}

// NewKeyVersions has the last versions at which missing keys were created, indexed by a hash of database and key. EXEC
// compares them if a key was missing at WATCH, and is missing again. Two keys may share an index; EXEC may then fail
// needlessly, which is allowed.
type NewKeyVersions [1 << 14]uint64

// Place returns the index of a key.
func (vs *NewKeyVersions) Place(db int, hash uint64) uint16 {
	return uint16((hash + uint64(db)) % uint64(len(vs)))
}

// Count returns the number of indexes with a version.
func (vs *NewKeyVersions) Count() (n uint64) {
	for _, version := range vs {
		if version != 0 {
			n++
		}
	}
	return n
}

// noteNewKey records that a missing key was created.
func (c *Call) noteNewKey(db int, it *keyspace.Item) {
	place := c.Keys.NewKeys.Place(db, it.Hash)
	if c.Undo != nil {
		c.Undo.noteNewKey(place, c.Keys.NewKeys[place])
	}
	c.Keys.NewKeys[place] = it.Version()
}

// noteSwap records that two databases were exchanged.
func (c *Call) noteSwap(a, b int) {
	if a == b {
		return
	}
	version := c.Keys.NextVersion()
	c.Keys.Swaps[a], c.Keys.Swaps[b] = version, version
}

// HasLocks reports whether there is any native lock. Without locks, only events of sessions can be due.
func (c *Call) HasLocks() bool { return c.Keys.Locks.Len() > 0 }

// noteDueLock sets HasDue if an event of a lock is due at the time of the read. The event must run in the log first.
func (c *Call) noteDueLock(db int, key string) {
	c.HasDue = c.HasDue || c.Keys.Locks.HasDue(db, key, c.NowMillis)
}

// NoteDueLocks sets HasDue for a read of all locks and sessions, if an event is due at the time of the read, and that
// time is later than the clock of the state. At the clock of the state, a lock is shown as it is until its event runs.
func (c *Call) NoteDueLocks() {
	c.HasDue = c.HasDue ||
		c.Reading && c.Keys.ClockMillis < c.NowMillis && c.Keys.Locks.HasAnyDue(c.NowMillis)
}

// LeaseUntil returns the milliseconds until a deadline, or 0 for Never.
func (c *Call) LeaseUntil(deadlineMillis int64) int64 {
	if deadlineMillis == Never {
		return 0
	}
	return max(1, SaturatingAdd(deadlineMillis, -c.NowMillis))
}

// RenewedMark returns the mark of an item that gets another deadline. A key that was taken without a lease gets its
// first lease by that, which is no renewal.
func (c *Call) RenewedMark(m keyspace.Mark, deadlineMillis int64) keyspace.Mark {
	if m.LeaseMillis != 0 {
		m.Renewals++
	}
	m.LeaseMillis = c.LeaseUntil(deadlineMillis)
	return m
}

// withRenewedMark returns an item that is about to get another deadline, with its mark at that deadline.
func (c *Call) withRenewedMark(it *keyspace.Item, deadlineMillis int64) keyspace.Item {
	if deadlineMillis != Never && deadlineMillis < c.NowMillis {
		return *it
	}
	if m, ok := it.Mark(); ok {
		return it.WithMark(c.RenewedMark(m, deadlineMillis))
	}
	if deadlineMillis != Never && c.Script != nil && it.Kind() == keyspace.KindHash && c.Script.hasCreated(c.DB, it) {
		c.Script.tookHash = true
		c.Host.LockEvent(c.stockEvent(locks.Granted, c.DB, it.Key(), "", *it))
		return it.WithMark(c.Host.NewMark(deadlineMillis))
	}
	return *it
}

// LockDeadline returns the deadline of the hold that ends last. It returns Never if a hold has a session, or if there
// is no hold.
func (c *Call) LockDeadline(key string) int64 {
	left, ok := c.Keys.Locks.LeaseLeftMillis(c.DB, key, c.NowMillis)
	if !ok || left < 0 {
		return Never
	}
	return SaturatingAdd(c.NowMillis, left)
}

// SwapsLocks reports whether a swap of two databases may move locks.
func (c *Call) SwapsLocks(a, b int) bool {
	if a == b {
		return false
	}
	due, ok := c.Keys.Locks.NextDue()
	return c.Keys.Locks.HasLocks(a) || c.Keys.Locks.HasLocks(b) || ok && due <= c.NowMillis
}

// Position returns the position of an item in scans: see [CursorShift].
func Position(it *keyspace.Item) uint64 { return it.Hash >> CursorShift }

// DatabaseNumber parses the number of a database.
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
