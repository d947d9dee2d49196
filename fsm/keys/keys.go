// Package keys has the commands for keys of any type and for databases, among them EXPIRE, SCAN and SORT.
package keys

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// Ops has the commands for keys and databases.
var Ops = map[string]command.Op{
	"cluster|countkeysinslot": countKeysInSlotOp,
	"cluster|getkeysinslot":   getKeysInSlotOp,
	"copy":                    copyOp,
	"dbsize":                  dbsizeOp,
	"exists":                  existsOp,
	"expire":                  command.With(expireAt, command.ExpirySeconds),
	"expireat":                command.With(expireAt, command.ExpirySecondsAt),
	"expiretime":              expiretimeOp,
	"keys":                    keysOp,
	"memory|usage":            memoryUsageOp,
	"move":                    moveOp,
	"object|encoding":         objectEncodingOp,
	"object|freq":             objectFreqOp,
	"object|idletime":         objectIdletimeOp,
	"object|refcount":         objectRefcountOp,
	"persist":                 persistOp,
	"pexpire":                 command.With(expireAt, command.ExpiryMillis),
	"pexpireat":               command.With(expireAt, command.ExpiryMillisAt),
	"pexpiretime":             pexpiretimeOp,
	"pttl":                    pttlOp,
	"randomkey":               randomkeyOp,
	"rename":                  renameOp,
	"renamenx":                renamenxOp,
	"scan":                    scanOp,
	"sort":                    command.With(sort, false),
	"sort_ro":                 command.With(sort, true),
	"swapdb":                  swapdbOp,
	"touch":                   existsOp,
	"ttl":                     ttlOp,
	"type":                    typeOp,
}

// existsOp is EXISTS or TOUCH. It counts a repeated key as often as the command names it.
func existsOp(c *command.Call) protocol.Value {
	var n int64
	for _, key := range c.Args[1:] {
		if c.Find(key) != nil {
			n++
		}
	}
	return protocol.Integer(n)
}

func typeOp(c *command.Call) protocol.Value {
	it := c.Find(c.Args[1])
	if it == nil {
		return protocol.Simple("none")
	}
	return protocol.Simple(it.Kind().String())
}

func renameOp(c *command.Call) protocol.Value {
	problem, _ := rename(c, false)
	if problem.IsError() {
		return problem
	}
	return protocol.OK
}

func renamenxOp(c *command.Call) protocol.Value {
	problem, done := rename(c, true)
	if problem.IsError() {
		return problem
	}
	return command.Boolean(done)
}

func rename(c *command.Call, onlyIfMissing bool) (problem protocol.Value, done bool) {
	from, to := c.Args[1], c.Args[2]
	it := c.Find(from)
	switch {
	case it == nil:
		return command.ErrNoSuchKey, false
	case from == to:
		return problem, false
	case onlyIfMissing && c.Find(to) != nil:
		return problem, false
	case len(to) > len(from):
		if cause := c.Host.Full(); cause != nil {
			return cause.Value(), false
		}
	}
	was := *it
	if !c.Fits(copyWork(&was)) {
		return command.ErrOverWork, false
	}
	c.TakeOut(c.DB, it)
	storeAnew(c, c.DB, renamed(c, &was, to))
	c.Notify(event.ClassGeneric, "rename_from", from)
	c.Notify(event.ClassGeneric, "rename_to", to)
	return problem, true
}

// storeAnew stores an item as if its key were new: a former item of the key does not suppress the event "new".
func storeAnew(c *command.Call, db int, it keyspace.Item) {
	replaces := c.Keys.Notifies&event.ClassNew != 0 && c.FindIn(db, it.Key()) != nil
	c.Store(db, it)
	if replaces {
		c.NotifyIn(db, event.ClassNew, "new", it.Key())
	}
}

func copyOp(c *command.Call) protocol.Value {
	from, to, db := c.Args[1], c.Args[2], c.DB
	replace := false
	for i := 3; i < len(c.Args); i++ {
		switch {
		case command.IsWord(c.Args[i], "REPLACE"):
			replace = true
		case command.IsWord(c.Args[i], "DB") && i+1 < len(c.Args):
			i++
			n, problem, ok := command.DatabaseNumber(c.Args[i])
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
	if db != c.DB && c.Host.HasLockAt(db, to) {
		if c.OverBudget {
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
	storeAnew(c, db, copied(c, it, to))
	c.NotifyIn(db, event.ClassGeneric, "copy_to", to)
	return command.One
}

// copyWork returns the work of copying a value. It is 0 for collections, which share memory with their copies.
func copyWork(it *keyspace.Item) int64 {
	if it.IsString() {
		return int64(len(it.Value()))
	}
	return 0
}

// renamed returns the item with another key. The caller has taken the original out of the database.
func renamed(c *command.Call, it *keyspace.Item, to string) (next keyspace.Item) {
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

// copied returns an independent copy of an item with another key.
func copied(c *command.Call, it *keyspace.Item, to string) keyspace.Item {
	if it.IsString() {
		return c.NewItem(to, it.Value(), it.DeadlineMillis, it.Encoding())
	}
	c.Spend(int64(len(to)))
	return it.Copied(c.HashOf(to), to, c.Keys.Generation)
}

func moveOp(c *command.Call) protocol.Value {
	db, problem, ok := command.DatabaseNumber(c.Args[2])
	if !ok {
		return problem
	}
	if db == c.DB {
		return command.ErrSameObject
	}
	exists := c.Host.HasLockAt(db, c.Args[1]) || c.FindIn(db, c.Args[1]) != nil
	it := c.Find(c.Args[1])
	if it == nil || exists {
		return command.Zero
	}
	c.Store(db, c.TakeOut(c.DB, it))
	c.Notify(event.ClassGeneric, "move_from", c.Args[1])
	c.NotifyIn(db, event.ClassGeneric, "move_to", c.Args[1])
	return command.One
}

func swapdbOp(c *command.Call) protocol.Value {
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
	if c.SwapsLocks(int(a), int(b)) {
		return errSwapLocks
	}
	c.SwapDatabases(int(a), int(b))
	return protocol.OK
}

func dbsizeOp(c *command.Call) protocol.Value {
	c.NoteDueKeys()
	return protocol.Integer(int64(c.Keys.Databases[c.DB].Len(c.NowMillis)))
}

var errSwapLocks = protocol.Err("a database with locks cannot be swapped")
