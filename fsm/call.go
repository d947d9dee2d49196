package fsm

import (
	"math"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/lua"
	"github.com/holdfast/holdfast/protocol"
)

// call is a command under way, and an op's view of the state: the words, the database, the instant.
// The same call serves many commands, one after another. An op keeps nothing of the call.
type call struct {
	st  *state
	ops bindings
	// programs are what the node has compiled, and users whose rights it has read.
	programs *lua.Cache
	users    *rightsCache
	db       int
	conn     uint64   // the client's connection at the batch's node; 0: not told
	args     []string // args[0] is the name; a subcommand's has the container's before
	// rules are what the user of a script may do; empty: everything.
	rules string

	instant
	memoryLimit
	acting
	// refusal is why a command may not run, if a function says that it may not.
	refusal protocol.Value
	chance
	meter
	listening
	parking
	watch lockWatch
	// seen is what the node has seen of locks, of a read; nil in an entry: no reply in the log rests on it.
	seen *lockWatch
	from caller
	// taking is the cause of the stock locks that the request takes away; 0: none yet. watched are the watched keys of the
	// transaction under way.
	taking  uint64
	watched string
	// incarnation is the one whose previous incarnations were dropped last. Empty: look at the next batch's.
	incarnation protocol.Origin

	// quiet: no client on this node waits for the replies.
	quiet bool
	lookups
	// reading: other reads may look at the state at the same time.
	reading bool
	// dueMet: the op met a key that is due at nowMillis but not yet by the clock of the state. The
	// reply is void then: see [Machine.Read].
	dueMet bool
	// undo notes the changes of the running script or transaction, else undo is nil.
	undo    *journal
	journal journal
	scripts scriptHost

	// passed counts the ended items that [call.ascend] met in old entries.
	passed int
	// hashed is a key and hash the key's hash, since most commands look for a key more than once.
	hashed string
	hash   uint64
	// latest is the command that was looked up last, since pipelines repeat commands.
	latest   *binding
	prefetch prefetcher
	replies  []protocol.Value // of the batch so far
}

// instant is the time at which a command happens.
type instant struct {
	// nowMillis is cluster time: the clock of the state in an entry, the leader's later estimate in
	// a read.
	nowMillis        int64
	wallOffsetMillis int64
	entryVersion     byte // of a read: the state's
}

// op is the behaviour of a command.
type op func(c *call) protocol.Value

// run executes the command c.args in database c.db.
func (c *call) run() protocol.Value {
	b := c.lookup(c.args[0])
	if b == nil || !c.knows(b.name) {
		return unknownCommand(c.args)
	}
	if !b.takes(len(c.args)) {
		return errArity(c.args[0])
	}
	if c.refuses(b, c.args) {
		return c.refusal
	}
	c.counting = b.counts && !c.quiet
	return b.do(c)
}

// lookup returns the behaviour of a command, nil if there is no such command.
func (c *call) lookup(name string) *binding {
	if c.latest != nil && c.latest.name == name {
		return c.latest
	}
	b := c.ops[name]
	if b != nil {
		c.latest = b
	}
	return b
}

// writes reports whether a command has an effect on the state.
func (c *call) writes(name string) bool {
	b := c.lookup(name)
	return b != nil && b.writes
}

// begin sets c to a request. number differs from request to request.
func (c *call) begin(r *protocol.Request, number uint64) {
	c.db, c.conn, c.args, c.rules = r.DB, r.Conn, r.Args, r.Rights
	c.seed, c.draws, c.taking = number, 0, 0
}

// find returns the item of key, nil if the key is absent. The pointer is good until the database
// changes; an op that needs the item longer copies it.
func (c *call) find(key string) *keyspace.Item {
	it := c.findIn(c.db, key)
	if c.counting {
		c.countLookup(it != nil)
	}
	return it
}

// findIn is find in another database. The lookup does not count as a hit or a miss.
func (c *call) findIn(db int, key string) *keyspace.Item {
	it := c.findStored(db, key)
	if it != nil && it.IsLock() && c.lockEnded(db, key) {
		return nil
	}
	return it
}

// findStored is findIn, and finds the item of a lock that has ended and is not worked off, too.
func (c *call) findStored(db int, key string) *keyspace.Item {
	it := c.st.databases[db].Find(c.hashOf(key), key)
	if it == nil {
		return nil
	}
	if it.Ended(c.nowMillis) {
		c.dueMet = c.dueMet || it.DeadlineMillis >= c.st.clockMillis
		return nil
	}
	if it.IsLock() && c.reading {
		c.meetLock(db, key)
	}
	return it
}

// hashOf is [keyspace.Hash], and remembers the last key.
func (c *call) hashOf(key string) uint64 {
	if key != c.hashed || key == "" {
		c.hashed, c.hash = key, keyspace.Hash(key)
	}
	return c.hash
}

// meetAll is [call.find] for ops that look at all keys of the database.
func (c *call) meetAll() {
	c.dueMet = c.dueMet || c.st.databases[c.db].EndsBetween(c.st.clockMillis, c.nowMillis)
	c.meetLocks()
}

// maxPassed is the number of ended items that the call of an old entry may pass before it sweeps them.
const maxPassed = 1 << 20

// ascend is [keyspace.Keyspace.Ascend] in the call's database. It ends early when the request is over its
// budget, which the caller asks [call.fits] about: a script could pass a million ended items again and
// again.
//
// Before [state.sweeps] the ended items are no part of the state. Then they cost nothing, and an entry
// sweeps them after maxPassed.
func (c *call) ascend(fromHash uint64, f func(it *keyspace.Item) bool) {
	d := c.st.databases[c.db]
	if c.slices() && c.st.locks.BehindAt(c.nowMillis) {
		every := f
		f = func(it *keyspace.Item) bool {
			if it.IsLock() && c.lockEnded(c.db, it.Key()) {
				return c.fits(0)
			}
			return every(it)
		}
	}
	if c.st.sweeps || c.reading {
		most := max(0, (c.ceiling-c.work)/endedWork)
		dead := d.Ascend(fromHash, c.nowMillis, int(min(most, math.MaxInt)), f)
		c.spend(int64(dead) * endedWork)
		return
	}
	if c.passed += d.Ascend(fromHash, c.nowMillis, math.MaxInt, f); c.passed > maxPassed {
		d.SweepAll(c.st.clockMillis)
		c.passed = 0
	}
}

// set gives key a value and a deadline.
func (c *call) set(key, value string, deadlineMillis int64) {
	c.store(c.db, c.newItem(key, value, deadlineMillis, keyspace.EncodingAuto))
}

// newItem makes an item that shares no memory with the log entry, and charges for the copy.
func (c *call) newItem(key, value string, deadlineMillis int64, e keyspace.Encoding) keyspace.Item {
	c.spend(int64(len(key) + len(value)))
	return keyspace.NewItem(c.hashOf(key), key, value, deadlineMillis, e)
}

// store stores an item in the place of the former item of the key. An item that has ended already
// is not stored and the key is removed: the item came and went.
func (c *call) store(db int, it keyspace.Item) {
	if it.Ended(c.nowMillis) {
		c.storeEnded(db, &it)
		return
	}
	it.SetVersion(c.st.nextVersion())
	d := c.st.databases[db]
	if c.account != 0 || d.HasAccounts() {
		c.countFor(d, &it)
	}
	c.st.itemBytes -= d.Bytes()
	before, replaced := d.Put(&it)
	c.st.itemBytes += d.Bytes()
	if !replaced || before.Ended(c.nowMillis) {
		c.noteNewKey(db, &it)
		c.came(db, &it, &before, replaced)
	} else if before.IsMarked() && !it.IsMarked() {
		c.watchOverwritten(db, &before, &it)
	}
	// A collection that was changed in place has been noted since the last savepoint.
	if c.undo != nil && !(it.Shares(&before) && it.OwnedBy(c.st.generation)) {
		c.undo.note(change{database: d, item: it, before: before, replaced: replaced})
	}
	if c.interest&event.InChanges != 0 {
		c.changed(db, it.Key())
	}
	c.noteKey(db, it.Key())
}

func (c *call) storeEnded(db int, it *keyspace.Item) {
	if old := c.findIn(db, it.Key()); old != nil {
		c.removeFrom(db, old)
	} else if c.remembers() {
		it.SetVersion(c.st.nextVersion())
		c.noteNewKey(db, it)
		c.notifyIn(db, classNew, "new", it.Key())
	}
}

// remove takes out an item that [call.find] returned. The pointer is invalid afterwards.
func (c *call) remove(it *keyspace.Item) { c.removeFrom(c.db, it) }

func (c *call) removeFrom(db int, it *keyspace.Item) {
	if before := c.takeOut(db, it); before.IsMarked() {
		c.watchRemoval(db, &before)
	}
}

// takeOut is [call.removeFrom], and says nothing of stock locks.
func (c *call) takeOut(db int, it *keyspace.Item) (before keyspace.Item) {
	d := c.st.databases[db]
	c.st.itemBytes -= d.Bytes()
	before = d.Remove(it.Hash, it.Key())
	c.st.itemBytes += d.Bytes()
	if c.undo != nil {
		c.undo.note(change{database: d, before: before, replaced: true})
	}
	if c.interest&event.InChanges != 0 {
		c.changed(db, before.Key())
	}
	return before
}

// replaceDatabase puts d in the place of a database.
func (c *call) replaceDatabase(db int, d *keyspace.Keyspace) {
	if c.entryVersion >= versionBudgets {
		c.spend(databaseWork)
	}
	if c.undo != nil {
		c.undo.note(change{database: c.st.databases[db], number: db, whole: true})
	}
	c.st.itemBytes += d.Bytes() - c.st.databases[db].Bytes()
	c.st.databases[db] = d
}

// swapDatabases exchanges two databases.
func (c *call) swapDatabases(a, b int) {
	first, second := c.st.databases[a], c.st.databases[b]
	c.replaceDatabase(a, second)
	c.replaceDatabase(b, first)
	c.noteSwap(a, b)
	c.changedDatabase(event.Swapped, a, b)
	c.st.waits.WakeAll(a)
	c.st.waits.WakeAll(b)
}
