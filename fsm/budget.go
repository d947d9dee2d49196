package fsm

import (
	"math"

	"github.com/holdfast/holdfast/protocol"
)

// The work of requests, words and scripts.
const (
	requestWork = 256 // any request
	wordWork    = 128 // a word of a request
	watchWork   = 256 // a key that EXEC compares
	luaStepWork = 20  // a step of a script
	hashWork    = 2   // a byte of a source that EVAL hashes
	// compileWork is a byte of a source that is compiled, at worst: the longest source is as much as a script may do.
	compileWork = 256
)

// budgets bound the work of requests that share an entry or the machine's lock. The budgets of an
// entry are part of the entry's meaning, so nodes must agree on them. The budgets are a field
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
	// endings is what all locks that end or are granted in an entry may do: see [call.beginLocks].
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

// maxWaitingBytes bounds what all waiters together count for. Nodes must agree on it.
const maxWaitingBytes = 256 << 20
