package fsm

import (
	"fmt"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

func delOp(c *call) protocol.Value {
	holders, work := c.holdsOf(c.Args[1:])
	switch {
	case holders > maxBroken:
		return errManyHolders
	case !c.Affords(len(c.Args) - 1), !c.Fits(work):
		return command.ErrOverWork
	}
	var n int64
	var first string
	broken := 0
	for _, key := range c.Args[1:] {
		if c.HasLockAt(c.DB, key) {
			if c.OverBudget {
				return command.ErrOverWork
			}
			if c.breakLock(key) {
				if broken++; broken == 1 {
					first = key
				}
				n++
			}
			continue
		}
		if it := c.Find(key); it != nil {
			c.Remove(it)
			c.Notify(event.ClassGeneric, "del", key)
			n++
		}
	}
	if broken > 0 {
		c.forced(first, broken, event.Forced{})
	}
	return protocol.Integer(n)
}

func flushdbOp(c *call) protocol.Value {
	if !flushMode(c.Args[1:]) {
		return command.ErrSyntax
	}
	if c.flush(c.DB) {
		c.forced("", 0, event.Forced{})
	}
	return protocol.OK
}

func flushallOp(c *call) protocol.Value {
	if !flushMode(c.Args[1:]) {
		return command.ErrSyntax
	}
	locks := false
	for db := range c.st.Databases {
		locks = c.flush(db) || locks
	}
	if locks {
		c.forced("", 0, event.Forced{})
	}
	return protocol.OK
}

// flush empties a database, and reports whether it had locks. A database without live keys keeps its store, since a
// script could otherwise fill its journal with a million stores. The sweep removes the expired items.
func (c *call) flush(db int) (locks bool) {
	if c.st.Databases[db].Len(c.st.ClockMillis) == 0 {
		return false
	}
	c.flushStock(db)
	c.ReplaceDatabase(db, keyspace.New(c.st.ClockMillis))
	c.EmitDatabase(event.Flushed, db, db)
	return c.flushLocks(db)
}

// flushMode parses ASYNC or SYNC of FLUSHALL, and reports whether the words are valid. Both have the same effect, since
// the garbage collector frees the memory.
func flushMode(words []string) bool {
	return len(words) == 0 || len(words) == 1 && (command.IsWord(words[0], "ASYNC") || command.IsWord(words[0], "SYNC"))
}

// advance sets the clock to the entry's stamp, and removes some of the ended keys. The removal follows from the log, so
// it is in the same entry on all nodes, and has one event for each key.
func (c *call) advance(e *protocol.Entry) {
	st := c.st
	st.advance(e.StampMillis, e.WallOffsetMillis)
	c.Ended = 0
	left := sweepLimit
	for db, d := range st.Databases {
		left -= d.Sweep(st.ClockMillis, left, func(it *keyspace.Item) { c.NoteExpired(db, it) })
	}
}

// isGuarded reports whether a command writes keys, and is refused if one of them is a lock. Lock commands and DEL have
// their own rules.
func isGuarded(row *protocol.Command) bool {
	_, ofLocks := lockOps[row.Name]
	return row.Route == protocol.Write && len(row.KeySpecs) > 0 && !ofLocks && !deletes(row.Name)
}

// deletes reports whether a command removes keys, whoever holds them.
func deletes(name string) bool { return name == "del" || name == "unlink" }

// hasLockKey reports whether a key of the present command is a lock.
func (c *call) hasLockKey(row *protocol.Command) bool {
	var room [4]int
	for _, at := range row.AppendKeyPositions(room[:0], c.Args) {
		if c.HasLockAt(c.DB, c.Args[at]) {
			return true
		}
	}
	return false
}

// These WRONGTYPE errors name the kind of lock at the key. The error of Redis names no kind.
var (
	errNativeThere = wrongTypeFor("a native lock; LOCK.INFO shows who holds it")
	errStockThere  = wrongTypeFor("a stock lock, taken by SET NX or a lock library; LOCK.INFO shows who holds it")
)

func wrongTypeFor(there string) protocol.Value {
	return protocol.ErrValue(command.ErrWrongType.Str + ": the key has " + there)
}

// wrongType returns the WRONGTYPE of the present command: its key is a native lock or, for a lock command, anything
// else.
func (c *call) wrongType(b *binding) protocol.Value {
	_, ofLocks := lockOps[b.name]
	if !ofLocks && !c.HasLocks() {
		return command.ErrWrongType
	}
	var room [4]int
	positions := b.row.AppendKeyPositions(room[:0], c.Args)
	c.Spend(int64(len(positions)) * command.KeyWork)
	for _, at := range positions {
		switch it := c.FindIn(c.DB, c.Args[at]); {
		case it == nil, it.IsLock() == ofLocks:
		case it.IsLock():
			return errNativeThere
		case it.IsMarked():
			return errStockThere
		default:
			return wrongTypeFor("a " + it.Kind().String())
		}
	}
	return command.ErrWrongType
}

// breakLock is DEL of a lock: all holds end by force. The lock stays while it has a queue or a delay.
func (c *call) breakLock(key string) (removed bool) {
	return c.breakHolds(&locks.Break{DB: c.DB, Key: key, Reason: locks.Broken}, "") > 0
}

// maxBroken bounds the holders of the locks that one DEL removes.
const maxBroken = locks.MaxPerSession

var errManyHolders = protocol.Err(fmt.Sprintf("DEL breaks locks of at most %d holders; name fewer keys", maxBroken))

// holdsOf returns the number of holders of the locks among the keys, and the work of their DEL.
func (c *call) holdsOf(keys []string) (holders int, work int64) {
	if !c.HasLocks() {
		return 0, 0
	}
	for _, key := range keys {
		n := c.st.Locks.Holders(c.DB, key)
		holders, work = holders+n, work+breakWork(n)
	}
	return holders, work
}

// flushLocks ends all holds of a database for FLUSHDB and FLUSHALL. The lock table emits the losses step by step.
func (c *call) flushLocks(db int) (any bool) {
	if any = c.st.Locks.HasLocks(db); any {
		t := c.changeLocks(0)
		t.Flush(db, c.recordCause(nativeLocks, ""))
		c.losses(nativeLocks).trimCauses()
		c.publishLockEvents()
	}
	return any
}
