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
	// compileWork is the work for a byte of a source that is compiled, at worst: compiling the longest source is as much
	// as a script may do.
	compileWork = 256
)

// budgets bound the work of requests that share an entry or the machine's lock. The budgets of an entry are part of the
// entry's meaning, so all nodes must have the same. The budgets are a field of [Machine] for tests only.
type budgets struct {
	// batch is the share of each batch. entry is shared by all batches of an entry, beyond their own shares. A request
	// that does not fit is not run, and ends its batch. The first request that exceeds its batch's share runs, whatever it
	// costs, so even the largest request runs when its turn comes.
	batch, entry int64
	// reads is shared by all reads of an entry, beyond the price of their words.
	reads int64
	// serving is shared by all waiters that an entry serves. The first of them may cost anything.
	serving int64
	// endings is shared by all changes of native locks that are due in an entry: see [call.beginLocks].
	endings int64
	// waiting bounds the memory of all waiters, in bytes.
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

// boundless is larger than every sum of work.
const boundless = 1 << 62

// price returns the least work of a request of n bytes.
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

// newOwnBudget returns a budget without a shared part.
func newOwnBudget(own int64) budget { return budget{total: boundless, left: own} }

// open starts the budget of the next batch, which has own beside the shared part.
func (b *budget) open(own int64) {
	b.shared = max(0, min(b.shared, b.left))
	b.left = b.shared + own
}

// ceiling returns the most that the next request may cost: anything, while the shared part is whole.
func (b *budget) ceiling() int64 {
	if b.shared == b.total && b.left >= b.total {
		return math.MaxInt64
	}
	return b.left
}

// maxWaitingBytes bounds the memory of all waiters. All nodes must have the same bound.
const maxWaitingBytes = 256 << 20
