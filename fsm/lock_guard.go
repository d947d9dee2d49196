package fsm

import (
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// guarded is a command that writes keys, and refuses to if one of them is a lock. The words of locks and DEL
// have ways of their own.
func guarded(row *protocol.Command, run op) op {
	return func(c *call) protocol.Value {
		if c.locksThere() && c.meetsLock(row) {
			if c.over {
				return errOverWork
			}
			return errWrongType
		}
		return run(c)
	}
}

// isGuarded reports whether the behaviour of a row has to be guarded.
func isGuarded(row *protocol.Command) bool {
	_, ofLocks := lockOps[row.Name]
	return row.Route == protocol.Write && len(row.KeySpecs) > 0 && !ofLocks && row.Name != "del" && row.Name != "unlink"
}

// meetsLock reports whether a key of the command under way is a lock.
func (c *call) meetsLock(row *protocol.Command) bool {
	var room [4]int
	for _, at := range row.AppendKeyPositions(room[:0], c.args) {
		if c.lockAt(c.db, c.args[at]) {
			return true
		}
	}
	return false
}

// Where Redis has no such error, WRONGTYPE says what is at the key.
var (
	errNativeThere = wrongTypeFor("a native lock; LOCK.INFO shows who holds it")
	errStockThere  = wrongTypeFor("a stock lock, taken by SET NX or a lock library; LOCK.INFO shows who holds it")
)

func wrongTypeFor(there string) protocol.Value {
	return protocol.ErrValue(errWrongType.Str + ": the key has " + there)
}

// do runs the behaviour of a command.
func (b *binding) do(c *call) protocol.Value {
	reply := b.run(c)
	if reply.Kind == protocol.KindError && reply.Str == errWrongType.Str && c.entryVersion >= versionHelps &&
		b.row != nil {
		return c.wrongType(b)
	}
	return reply
}

// wrongType is the WRONGTYPE of the command under way: a native lock is in the way, or, for a lock command, anything
// else.
func (c *call) wrongType(b *binding) protocol.Value {
	_, ofLocks := lockOps[b.name]
	if !ofLocks && !c.locksThere() {
		return errWrongType
	}
	var room [4]int
	positions := b.row.AppendKeyPositions(room[:0], c.args)
	c.spend(int64(len(positions)) * keyWork)
	for _, at := range positions {
		switch it := c.findStored(c.db, c.args[at]); {
		case it == nil, it.IsLock() == ofLocks:
		case it.IsLock():
			return errNativeThere
		case it.IsMarked():
			return errStockThere
		default:
			return wrongTypeFor("a " + it.Kind().String())
		}
	}
	return errWrongType
}

// breakLock is DEL of a lock: its holds end by force. The lock stays while somebody waits for it, or its
// delay runs.
func (c *call) breakLock(key string) (removed bool) {
	return c.breakHolds(&locks.Break{DB: c.db, Key: key, Reason: locks.Broken}, "") > 0
}

// holdsWork is the work of DEL with the locks among the keys.
func (c *call) holdsWork(keys []string) (work int64) {
	if !c.locksThere() {
		return 0
	}
	for _, key := range keys {
		work += c.breakWork(key)
	}
	return work
}

// flushLocks is FLUSHDB for the locks of a database: all are lost. The lock table works that off in time.
func (c *call) flushLocks(db int) (any bool) {
	if any = c.st.locks.Any(db); any {
		t := c.changeLocks(0)
		t.Flush(db, c.causeOf(nativeLocks, ""))
		c.losses(nativeLocks).trimCauses()
		c.tellLocks()
	}
	return any
}

var errSwapLocks = protocol.Err("a database with locks cannot be swapped")

// swapsLocks reports whether one of two databases has locks, or may have.
func (c *call) swapsLocks(a, b int) bool {
	if a == b {
		return false
	}
	due, ok := c.st.locks.NextDue()
	return c.st.locks.Any(a) || c.st.locks.Any(b) || ok && due <= c.nowMillis
}

// lockDeadline is the deadline of the longest hold of a lock, never if that is bound to a session or nobody
// holds the lock.
func (c *call) lockDeadline(key string) int64 {
	if c.slices() {
		c.spend(int64(c.st.locks.Holders(c.db, key)) * brokenWork)
	}
	left, ok := c.st.locks.LeftMillis(c.db, key, c.nowMillis)
	if !ok || left < 0 {
		return never
	}
	return saturatingAdd(c.nowMillis, left)
}
