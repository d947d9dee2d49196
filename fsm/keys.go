package fsm

import (
	"math"

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
		if c.lockAt(c.DB, key) {
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
				c.watch.loses(c.DB, it) // whoever sends DEL does not say that it is the owner
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

// existsOp is EXISTS and TOUCH: a key that is named twice counts twice.
func existsOp(c *call) protocol.Value {
	var n int64
	for _, key := range c.Args[1:] {
		if c.Find(key) != nil {
			n++
		}
	}
	return protocol.Integer(n)
}

func typeOp(c *call) protocol.Value {
	it := c.Find(c.Args[1])
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
	return command.Boolean(done)
}

func (c *call) rename(onlyIfMissing bool) (problem protocol.Value, done bool) {
	from, to := c.Args[1], c.Args[2]
	it := c.Find(from)
	switch {
	case it == nil:
		return command.ErrNoSuchKey, false
	case from == to:
		return problem, false
	case onlyIfMissing && c.Find(to) != nil:
		return problem, false
	case len(to) > len(from) && c.full():
		return errOOM, false
	}
	was := *it
	if !c.Fits(copyWork(&was)) {
		return command.ErrOverWork, false
	}
	c.TakeOut(c.DB, it)
	c.storeAnew(c.DB, c.renamed(&was, to))
	c.Notify(event.ClassGeneric, "rename_from", from)
	c.Notify(event.ClassGeneric, "rename_to", to)
	return problem, true
}

// storeAnew stores an item as a new key, in the place of any former item of the key.
func (c *call) storeAnew(db int, it keyspace.Item) {
	replaces := c.st.Notifies&event.ClassNew != 0 && c.FindIn(db, it.Key()) != nil
	c.Store(db, it)
	if replaces {
		c.NotifyIn(db, event.ClassNew, "new", it.Key())
	}
}

func copyOp(c *call) protocol.Value {
	from, to, db := c.Args[1], c.Args[2], c.DB
	replace := false
	for i := 3; i < len(c.Args); i++ {
		switch {
		case command.IsWord(c.Args[i], "REPLACE"):
			replace = true
		case command.IsWord(c.Args[i], "DB") && i+1 < len(c.Args):
			i++
			n, problem, ok := databaseNumber(c.Args[i])
			if !ok {
				return problem
			}
			db = n
		default:
			return command.ErrSyntax
		}
	}
	if from == to && db == c.DB {
		return command.ErrSameObject
	}
	if db != c.DB && c.lockAt(db, to) {
		if c.Over {
			return command.ErrOverWork
		}
		return command.ErrWrongType
	}
	it := c.Find(from)
	if it == nil || c.FindIn(db, to) != nil && !replace {
		return command.Zero
	}
	if !c.Fits(copyWork(it)) {
		return command.ErrOverWork
	}
	c.storeAnew(db, c.copied(it, to))
	c.NotifyIn(db, event.ClassGeneric, "copy_to", to)
	return command.One
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
		next = c.NewItem(to, it.Value(), it.DeadlineMillis, it.Encoding())
	} else {
		c.Spend(int64(len(to)))
		next = it.Renamed(c.HashOf(to), to)
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
		return c.NewItem(to, it.Value(), it.DeadlineMillis, it.Encoding())
	}
	c.Spend(int64(len(to)))
	return it.Copied(c.HashOf(to), to, c.st.Generation)
}

func moveOp(c *call) protocol.Value {
	db, problem, ok := databaseNumber(c.Args[2])
	if !ok {
		return problem
	}
	if db == c.DB {
		return command.ErrSameObject
	}
	there := c.lockAt(db, c.Args[1]) || c.FindIn(db, c.Args[1]) != nil
	it := c.Find(c.Args[1])
	if it == nil || there {
		return command.Zero
	}
	was := *it
	c.TakeOut(c.DB, it)
	c.Store(db, was)
	c.Notify(event.ClassGeneric, "move_from", c.Args[1])
	c.NotifyIn(db, event.ClassGeneric, "move_to", c.Args[1])
	return command.One
}

// databaseNumber reads the number of a database.
func databaseNumber(word string) (db int, problem protocol.Value, ok bool) {
	n, ok := protocol.ParseInt(word)
	switch {
	case !ok:
		return 0, command.ErrNotInteger, false
	case n < math.MinInt32 || n > math.MaxInt32:
		return 0, protocol.Err("value is out of range, value must between -2147483648 and 2147483647"), false
	case n < 0 || n >= protocol.MaxDatabases:
		return 0, command.ErrDBRange, false
	}
	return int(n), problem, true
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

func swapdbOp(c *call) protocol.Value {
	a, ok := command.ParseInt32(c.Args[1])
	if !ok {
		return protocol.Err("invalid first DB index")
	}
	b, ok := command.ParseInt32(c.Args[2])
	if !ok {
		return protocol.Err("invalid second DB index")
	}
	if min(a, b) < 0 || max(a, b) >= protocol.MaxDatabases {
		return command.ErrDBRange
	}
	if c.swapsLocks(int(a), int(b)) {
		return errSwapLocks
	}
	c.SwapDatabases(int(a), int(b))
	return protocol.OK
}

func dbsizeOp(c *call) protocol.Value {
	c.MeetAll()
	n := c.countKeys(c.DB)
	if c.Over {
		return command.ErrOverWork
	}
	return protocol.Integer(int64(n))
}
