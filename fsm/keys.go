package fsm

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

func delOp(c *call) protocol.Value {
	if !c.Affords(len(c.Args)-1) || !c.Fits(c.holdsWork(c.Args[1:])) {
		return command.ErrOverWork
	}
	var n int64
	var first string
	broken := 0
	for _, key := range c.Args[1:] {
		if c.LockAt(c.DB, key) {
			if c.Over {
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
			if it.IsMarked() && !c.scripts.running {
				c.watch.loses(c.DB, it) // DEL does not say that its sender is the owner
			}
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

// flush empties a database. A database without keys stays, or a script could fill its journal with a
// million of them. Its ended items are swept in time. flush reports whether there were locks.
func (c *call) flush(db int) (locks bool) {
	if c.st.Databases[db].Len(c.st.ClockMillis) == 0 {
		return false
	}
	c.flushStock(db)
	c.ReplaceDatabase(db, keyspace.New(c.st.ClockMillis))
	c.ChangedDatabase(event.Flushed, db, db)
	return c.flushLocks(db)
}

// flushMode reads ASYNC or SYNC of FLUSHALL. Both mean the same here, as the garbage collector frees
// the memory.
func flushMode(words []string) bool {
	return len(words) == 0 || len(words) == 1 && (command.IsWord(words[0], "ASYNC") || command.IsWord(words[0], "SYNC"))
}
