package fsm

import (
	"math"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

func delOp(c *call) protocol.Value {
	if !c.affords(len(c.args)-1) || !c.fits(c.holdsWork(c.args[1:])) {
		return errOverWork
	}
	var n int64
	var first string
	broken := 0
	for _, key := range c.args[1:] {
		if c.lockAt(c.db, key) {
			if c.over {
				return errOverWork
			}
			if c.breakLock(key) {
				if broken++; broken == 1 {
					first = key
				}
				n++
			}
			continue
		}
		if it := c.find(key); it != nil {
			if it.IsMarked() && !c.scripts.running {
				c.watch.loses(c.db, it) // whoever sends DEL does not say that it is the owner
			}
			c.remove(it)
			c.notify(classGeneric, "del", key)
			n++
		}
	}
	if broken > 0 {
		c.forced(first, broken, event.Forced{})
	}
	return protocol.Integer(n)
}

// existsOp is EXISTS and TOUCH: a key that is named twice counts twice.
func existsOp(c *call) protocol.Value {
	var n int64
	for _, key := range c.args[1:] {
		if c.find(key) != nil {
			n++
		}
	}
	return protocol.Integer(n)
}

func typeOp(c *call) protocol.Value {
	it := c.find(c.args[1])
	if it == nil {
		return protocol.Simple("none")
	}
	return protocol.Simple(it.Kind().String())
}

func renameOp(c *call) protocol.Value {
	problem, _ := c.rename(false)
	if problem.IsError() {
		return problem
	}
	return protocol.OK
}

func renamenxOp(c *call) protocol.Value {
	problem, done := c.rename(true)
	if problem.IsError() {
		return problem
	}
	return boolean(done)
}

func (c *call) rename(onlyIfMissing bool) (problem protocol.Value, done bool) {
	from, to := c.args[1], c.args[2]
	it := c.find(from)
	switch {
	case it == nil:
		return errNoSuchKey, false
	case from == to:
		return problem, false
	case onlyIfMissing && c.find(to) != nil:
		return problem, false
	case len(to) > len(from) && c.full():
		return errOOM, false
	}
	was := *it
	if !c.fits(copyWork(&was)) {
		return errOverWork, false
	}
	c.takeOut(c.db, it)
	c.storeAnew(c.db, c.renamed(&was, to))
	c.notify(classGeneric, "rename_from", from)
	c.notify(classGeneric, "rename_to", to)
	return problem, true
}

// storeAnew stores an item as a new key, in the place of any former item of the key.
func (c *call) storeAnew(db int, it keyspace.Item) {
	replaces := c.st.notifies&classNew != 0 && c.findIn(db, it.Key()) != nil
	c.store(db, it)
	if replaces {
		c.notifyIn(db, classNew, "new", it.Key())
	}
}

func copyOp(c *call) protocol.Value {
	from, to, db := c.args[1], c.args[2], c.db
	replace := false
	for i := 3; i < len(c.args); i++ {
		switch {
		case isWord(c.args[i], "REPLACE"):
			replace = true
		case isWord(c.args[i], "DB") && i+1 < len(c.args):
			i++
			n, problem, ok := databaseNumber(c.args[i])
			if !ok {
				return problem
			}
			db = n
		default:
			return errSyntax
		}
	}
	if from == to && db == c.db {
		return errSameObject
	}
	if db != c.db && c.lockAt(db, to) {
		if c.over {
			return errOverWork
		}
		return errWrongType
	}
	it := c.find(from)
	if it == nil || c.findIn(db, to) != nil && !replace {
		return zero
	}
	if !c.fits(copyWork(it)) {
		return errOverWork
	}
	c.storeAnew(db, c.copied(it, to))
	c.notifyIn(db, classGeneric, "copy_to", to)
	return one
}

// copyWork is the work of a copy of a value. Collections share the memory of their copies.
func copyWork(it *keyspace.Item) int64 {
	if it.IsString() {
		return int64(len(it.Value()))
	}
	return 0
}

// renamed is an item under another key, in the place of the item.
func (c *call) renamed(it *keyspace.Item, to string) (next keyspace.Item) {
	if it.IsString() {
		next = c.newItem(to, it.Value(), it.DeadlineMillis, it.Encoding())
	} else {
		c.spend(int64(len(to)))
		next = it.Renamed(c.hashOf(to), to)
	}
	if m, ok := it.Mark(); ok {
		next = next.WithMark(m)
	}
	next.SetAccount(it.Account())
	return next
}

// copied is a copy of an item under another key.
func (c *call) copied(it *keyspace.Item, to string) keyspace.Item {
	if it.IsString() {
		return c.newItem(to, it.Value(), it.DeadlineMillis, it.Encoding())
	}
	c.spend(int64(len(to)))
	return it.Copied(c.hashOf(to), to, c.st.generation)
}

func moveOp(c *call) protocol.Value {
	db, problem, ok := databaseNumber(c.args[2])
	if !ok {
		return problem
	}
	if db == c.db {
		return errSameObject
	}
	there := c.lockAt(db, c.args[1]) || c.findIn(db, c.args[1]) != nil
	it := c.find(c.args[1])
	if it == nil || there {
		return zero
	}
	was := *it
	c.takeOut(c.db, it)
	c.store(db, was)
	c.notify(classGeneric, "move_from", c.args[1])
	c.notifyIn(db, classGeneric, "move_to", c.args[1])
	return one
}

// databaseNumber reads the number of a database.
func databaseNumber(word string) (db int, problem protocol.Value, ok bool) {
	n, ok := protocol.ParseInt(word)
	switch {
	case !ok:
		return 0, errNotInteger, false
	case n < math.MinInt32 || n > math.MaxInt32:
		return 0, protocol.Err("value is out of range, value must between -2147483648 and 2147483647"), false
	case n < 0 || n >= protocol.MaxDatabases:
		return 0, errDBRange, false
	}
	return int(n), problem, true
}

// parseInt32 reads an int of C.
func parseInt32(word string) (n int64, ok bool) {
	n, ok = protocol.ParseInt(word)
	return n, ok && n >= math.MinInt32 && n <= math.MaxInt32
}

func flushdbOp(c *call) protocol.Value {
	if !flushMode(c.args[1:]) {
		return errSyntax
	}
	if c.flush(c.db) {
		c.forced("", 0, event.Forced{})
	}
	return protocol.OK
}

func flushallOp(c *call) protocol.Value {
	if !flushMode(c.args[1:]) {
		return errSyntax
	}
	locks := false
	for db := range c.st.databases {
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
	if c.st.databases[db].Len(c.st.clockMillis) == 0 {
		return false
	}
	c.flushStock(db)
	c.replaceDatabase(db, keyspace.New(c.st.clockMillis))
	c.changedDatabase(event.Flushed, db, db)
	return c.flushLocks(db)
}

// flushMode reads ASYNC or SYNC of FLUSHALL. Both mean the same here, as the garbage collector frees
// the memory.
func flushMode(words []string) bool {
	return len(words) == 0 || len(words) == 1 && (isWord(words[0], "ASYNC") || isWord(words[0], "SYNC"))
}

func swapdbOp(c *call) protocol.Value {
	a, ok := parseInt32(c.args[1])
	if !ok {
		return protocol.Err("invalid first DB index")
	}
	b, ok := parseInt32(c.args[2])
	if !ok {
		return protocol.Err("invalid second DB index")
	}
	if min(a, b) < 0 || max(a, b) >= protocol.MaxDatabases {
		return errDBRange
	}
	if c.swapsLocks(int(a), int(b)) {
		return errSwapLocks
	}
	c.swapDatabases(int(a), int(b))
	return protocol.OK
}

func dbsizeOp(c *call) protocol.Value {
	c.meetAll()
	n := c.countKeys(c.db)
	if c.over {
		return errOverWork
	}
	return protocol.Integer(int64(n))
}
