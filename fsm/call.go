package fsm

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// call is a command on its way through the state, and how its op sees the
// state: the words, the database, the instant. One is used for many commands,
// one after another; an op keeps nothing of it.
type call struct {
	st   *state
	ops  table
	db   int
	args []string // args[0] is the name, a subcommand's with its container's

	// nowMillis is the instant at which the command happens: the clock of the
	// state while an entry is applied, the leader's later estimate for a read.
	nowMillis        int64
	wallOffsetMillis int64

	// entryVersion is that of the entry's format. Reads do not look at it.
	entryVersion byte
	// limited: keys and scripts may take limitBytes: see memory.go.
	limited    bool
	limitBytes int64
	// quiet: nobody waits for the replies.
	quiet bool
	// reading: other reads may look at the state at the same time.
	reading bool
	// dueMet: a key was met that is due at nowMillis but not yet by the clock of
	// the state. Then what the op answers is void: see [Machine.Read].
	dueMet bool
	// seed is what makes [call.random] differ from one request to the next.
	seed  uint64
	draws uint64
	// origin and seq name the batch. scripted counts the scripts in it that may write,
	// and those that only read: see [call.scriptSeed].
	origin   protocol.Origin
	seq      uint64
	scripted [2]uint64

	// undo is where changes are noted while a script or a transaction runs, else nil.
	undo    *journal
	journal journal

	bounds budgets
	// pays is what the batch may spend on requests that write and on the words of all, looks
	// what it may on what reads do beyond their words.
	pays, looks purse
	// work counts what the request did: see [call.spend]. It may come to ceiling; over: it was, or
	// would have been, more. Then nothing of the request is kept, whatever it answers.
	work, ceiling int64
	over          bool
	// passed counts the items whose deadline has passed that [call.ascend] met.
	passed int

	scripts scriptHost
	// hashed is a key, and hash its hash: most commands look for one key more than once.
	hashed string
	hash   uint64
	// latest is the command that was looked up last: pipelines are of one kind.
	latest *binding

	prefetch prefetcher
	replies  []protocol.Value // of the batch so far
}

// op is the behaviour of a command.
type op func(c *call) protocol.Value

// run executes the command c.args in database c.db.
func (c *call) run() protocol.Value {
	b := c.lookup(c.args[0])
	if b == nil {
		return unknownCommand(c.args)
	}
	if !b.takes(len(c.args)) {
		return errArity(c.args[0])
	}
	if b.grows && c.full() {
		return errOOM
	}
	return b.run(c)
}

// lookup is the behaviour of a command, nil if there is no such.
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

// begin sets c to a request. number tells it from others.
func (c *call) begin(r *protocol.Request, number uint64) {
	c.db, c.args = r.DB, r.Args
	c.seed, c.draws = number, 0
}

// find is the item of key, nil if the key is absent. The pointer is good until
// the database is changed: who needs it beyond that copies the item.
func (c *call) find(key string) *keyspace.Item { return c.findIn(c.db, key) }

func (c *call) findIn(db int, key string) *keyspace.Item {
	it := c.st.databases[db].Find(c.hashOf(key), key)
	if it == nil {
		return nil
	}
	if it.Ended(c.nowMillis) {
		c.dueMet = c.dueMet || it.DeadlineMillis >= c.st.clockMillis
		return nil
	}
	return it
}

// hashOf is [keyspace.Hash], computed once for a key that is asked for again and again.
func (c *call) hashOf(key string) uint64 {
	if key != c.hashed || key == "" {
		c.hashed, c.hash = key, keyspace.Hash(key)
	}
	return c.hash
}

// meetAll is [call.find] for ops that look at all keys of the database.
func (c *call) meetAll() {
	c.dueMet = c.dueMet || c.st.databases[c.db].EndsBetween(c.st.clockMillis, c.nowMillis)
}

// maxPassed is how many items that wait to be swept a call may pass before it
// sweeps them.
const maxPassed = 1 << 20

// ascend is [keyspace.Keyspace.Ascend] in the call's database.
//
// A script could pass a million keys that wait to be swept again and again.
// While an entry is applied they are then swept at once, which shows nowhere;
// a read, which must not, counts them as its work. An entry does not count them:
// how many there are differs from node to node.
func (c *call) ascend(fromHash uint64, f func(it *keyspace.Item) bool) {
	d := c.st.databases[c.db]
	dead := d.Ascend(fromHash, c.nowMillis, f)
	if c.reading {
		c.spend(int64(dead) * keyWork)
		return
	}
	if c.passed += dead; c.passed > maxPassed {
		d.SweepAll(c.st.clockMillis)
		c.passed = 0
	}
}

// set gives key a value and a deadline.
func (c *call) set(key, value string, deadlineMillis int64) {
	c.store(c.db, c.newItem(key, value, deadlineMillis, keyspace.EncodingAuto))
}

// newItem makes an item that shares no memory with the log entry. The copy is noted as work.
func (c *call) newItem(key, value string, deadlineMillis int64, e keyspace.Encoding) keyspace.Item {
	c.spend(int64(len(key) + len(value)))
	return keyspace.NewItem(c.hashOf(key), key, value, deadlineMillis, e)
}

// store puts it in the place of what its key was. If it has ended already it is
// not stored, and its key is removed: it came and went.
func (c *call) store(db int, it keyspace.Item) {
	if it.Ended(c.nowMillis) {
		c.storeEnded(db, &it)
		return
	}
	it.Version = c.st.nextVersion()
	d := c.st.databases[db]
	c.st.itemBytes -= d.Bytes()
	before, replaced := d.Put(&it)
	c.st.itemBytes += d.Bytes()
	if !replaced || before.Ended(c.nowMillis) {
		c.noteCreation(db, &it)
	}
	if c.undo != nil {
		c.undo.note(change{database: d, item: it, before: before, replaced: replaced})
	}
}

func (c *call) storeEnded(db int, it *keyspace.Item) {
	if old := c.findIn(db, it.Key()); old != nil {
		c.removeFrom(db, old)
	} else if c.remembers() {
		it.Version = c.st.nextVersion()
		c.noteCreation(db, it)
	}
}

// remove takes out an item that [call.find] returned. The pointer is no good afterwards.
func (c *call) remove(it *keyspace.Item) { c.removeFrom(c.db, it) }

func (c *call) removeFrom(db int, it *keyspace.Item) {
	d := c.st.databases[db]
	c.st.itemBytes -= d.Bytes()
	before := d.Remove(it.Hash, it.Key())
	c.st.itemBytes += d.Bytes()
	if c.undo != nil {
		c.undo.note(change{database: d, before: before, replaced: true})
	}
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
}
