package fsm

import (
	"math"

	"github.com/holdfast/holdfast/protocol"
)

// Work is the cost of commands, in about nanoseconds of one core: a byte copied is 1. Work is counted
// and never timed, so that all nodes count alike. DESIGN.md has the measurements.
const (
	requestWork = 256 // any request
	wordWork    = 128 // a word of a request
	keyWork     = 64  // something that is looked at and passed
	scanWork    = 160 // a key that KEYS or SCAN looks at, and may show. Before versionCosts keyWork stood in its place
	watchWork   = 256 // a key that EXEC compares
	endedWork   = 16  // an ended item that waits for the sweep, and that a look at all keys passes
	writeWork   = 512 // a key that is written or deleted, after a request's first
	stepWork    = 8   // a step of a pattern
	luaStepWork = 20  // a step of a script
	hashWork    = 2   // a byte of a source that EVAL hashes
	// compileWork is a byte of a source that is compiled, at worst: the longest source is as much as a script may do.
	// Before versionScripts formerCompileWork stood in its place.
	compileWork       = 256
	formerCompileWork = 100
	// databaseWork is a database that is replaced: a journal may keep a KiB of it.
	databaseWork = 1 << 10
)

// versionBudgets is the first version of the entry whose batches and transactions have budgets.
const versionBudgets = 3

// versionCosts is the first version of the entry that charges what they cost for keys that are scanned, for rows about
// locks, and for each queue that a waiter leaves, before any leaves.
const versionCosts = 6

// spendScan charges for a key that is scanned.
func (c *call) spendScan() {
	if c.entryVersion < versionCosts {
		c.spend(keyWork)
		return
	}
	c.spend(scanWork)
}

// budgets bound the work of requests that share an entry or the machine's lock. The budgets of an
// entry are part of the meaning of version 3, so nodes must agree on them. The budgets are a field
// of [Machine] for tests alone.
type budgets struct {
	// batch is what each batch may do in any case. entry is what all batches of an entry may do
	// beyond that, together. A request that does not fit is not run, and ends its batch. The first
	// request that wants more than its batch's share runs, whatever it costs, so that even the
	// largest request runs when its turn comes.
	batch, entry int64
	// reads is what all reads of an entry may do beyond the price of their words.
	reads int64
	// serving is what all waiters of an entry that are served may do. The first may do anything.
	serving int64
	// endings is what all locks that end or are granted in an entry may do: see [call.beginLocks]. Before version 6 of
	// the entry that was part of serving.
	endings int64
	// waiting is what all waiters together count for, in bytes.
	waiting int64
	// transaction bounds an EXEC.
	transaction int64
	// readShort and readLong bound a call of [Machine.Read].
	readShort, readLong int64
}

func defaultBudgets() budgets {
	return budgets{
		batch: 1 << 16, entry: 1 << 26, reads: 1 << 25, serving: 1 << 24, endings: 1 << 23, waiting: maxWaitingBytes,
		transaction: 1 << 28,
		readShort:   1 << 23, readLong: 1 << 24,
	}
}

// boundless is above every sum of work.
const boundless = 1 << 62

// noBudgets are the budgets of entries of versions 1 and 2.
func noBudgets() budgets {
	return budgets{
		entry: boundless, reads: boundless, serving: boundless, endings: boundless, waiting: maxWaitingBytes,
		transaction: boundless,
	}
}

// price is what any request of n bytes in the entry costs before running.
func price(r *protocol.Request, n int) int64 {
	return requestWork + int64(len(r.Args))*wordWork + int64(n)
}

// budget is the work that a batch may spend.
type budget struct {
	total  int64 // what all batches of the entry share
	shared int64 // the part of total that earlier batches left
	left   int64 // of shared and of the batch's own share
}

func newBudget(shared int64) budget { return budget{total: shared, shared: shared, left: shared} }

// newOwnBudget is a budget without a shared part.
func newOwnBudget(own int64) budget { return budget{total: boundless, left: own} }

// open hands the budget to the next batch, which has own beside the shared part.
func (b *budget) open(own int64) {
	b.shared = max(0, min(b.shared, b.left))
	b.left = b.shared + own
}

// ceiling is what the next request may cost: anything, while nothing of the shared part was spent.
func (b *budget) ceiling() int64 {
	if b.shared == b.total && b.left >= b.total {
		return math.MaxInt64
	}
	return b.left
}

// meter counts the work of requests.
type meter struct {
	bounds budgets
	// writeBudget is for requests that write and for the words of all requests, readBudget for reads beyond their
	// words, wakeBudget for waiters that are served.
	writeBudget, readBudget, wakeBudget budget
	// endings is what is left of the work for locks that end or are granted, and turned what the lock table got of it.
	endings, turned int64
	// work is the work of the request so far, and ceiling the most that is allowed. over: the
	// request did more, or would have; then nothing of the request is kept, whatever the reply.
	work, ceiling int64
	over          bool
}

// spend notes work that the price of a request does not contain.
func (c *call) spend(work int64) { c.work += work }

// fits reports whether the request may do this much more work. If not, the request is over.
func (c *call) fits(work int64) bool {
	if c.work+work <= c.ceiling {
		return true
	}
	c.over = true
	return false
}

// affords is fits and spend for a request that writes so many keys. The price contains the first.
func (c *call) affords(keys int) bool {
	if c.entryVersion < versionBudgets || keys < 2 {
		return true
	}
	work := int64(keys-1) * writeWork
	if !c.fits(work) {
		return false
	}
	c.spend(work)
	return true
}

// narrow lowers the ceiling: no more work than most is allowed from here on. The result is for widen.
func (c *call) narrow(most int64) (outer int64) {
	outer = c.ceiling
	c.ceiling = min(c.ceiling, c.work+most)
	return outer
}

// widen restores the ceiling from before narrow. own reports that the work was more than most. If own
// is false, c.over says whether the work was more than the outer ceiling.
func (c *call) widen(outer int64) (own bool) {
	own = c.over && c.ceiling < outer
	c.over = c.over && !own
	c.ceiling = outer
	return own
}

// runRead runs a request that only reads, in an entry or beside. The work does not count as the
// entry's, since nodes without a waiting client skip the request.
func (c *call) runRead() protocol.Value {
	work, ceiling := c.work, c.ceiling
	c.work, c.ceiling = 0, c.readBudget.ceiling()
	reply := c.run()
	c.readBudget.left -= c.work
	c.work, c.ceiling = work, ceiling
	return reply
}

// readInEntry is [call.runRead] in an entry: a read over budget is answered with an error, as later
// requests must not wait for another turn.
func (c *call) readInEntry() protocol.Value {
	reply := c.runRead()
	if c.over {
		c.over = false
		return protocol.ErrNoRoom.Value()
	}
	return reply
}
