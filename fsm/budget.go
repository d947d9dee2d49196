package fsm

import (
	"math"

	"github.com/holdfast/holdfast/protocol"
)

// The prices of requests and scripts. The unit of work is about a nanosecond.
const (
	requestWork = 256 // the work for any request
	wordWork    = 128 // the work for each word of a request
	watchWork   = 256 // the work for each key that EXEC compares
	luaStepWork = 20  // the work for each step of a script
	hashWork    = 2   // the work for each byte of a source that EVAL hashes
	compileWork = 256 // the work for each byte of a source that is compiled, in the worst case
)

// budgets bound the work of requests that share a log entry or the machine's lock. All nodes must have the same
// budgets, since the budgets decide which requests of an entry run. Only tests set other budgets than the default.
type budgets struct {
	// batch is the work that each batch may always spend. entry is the work that all batches of an entry may spend
	// together beyond that. A request that does not fit does not run, and ends its batch. But the first request of an
	// entry that exceeds batch runs whatever it costs, so that even the largest request runs at some time.
	batch, entry int64
	// reads is the work of all reads of an entry together. The price of their words does not count.
	reads int64
	// serving is the work of all waiters that an entry serves together. The first of them may cost anything.
	serving int64
	// lockChanges is the work of all due changes of native locks in an entry: see [call.sweepLocks].
	lockChanges int64
	// waiting bounds the memory of all waiters, in bytes.
	waiting int64
	// transaction bounds the work of an EXEC.
	transaction int64
	// readShort and readLong bound the work of a short and of a long [Machine.Read].
	readShort, readLong int64
}

func defaultBudgets() budgets {
	return budgets{
		batch: 1 << 16, entry: 1 << 26, reads: 1 << 25, serving: 1 << 24, lockChanges: 1 << 23, waiting: maxWaitingBytes,
		transaction: 1 << 28,
		readShort:   1 << 23, readLong: 1 << 24,
	}
}

// boundless is larger than every sum of work.
const boundless = 1 << 62

// price returns the work for a request of n bytes before it runs.
func price(r *protocol.Request, n int) int64 {
	return requestWork + int64(len(r.Args))*wordWork + int64(n)
}

// budget is the work that a batch may spend: its own share, and a part that all batches of an entry share.
type budget struct {
	total  int64 // the shared part at the beginning of the entry
	shared int64 // the shared part at the beginning of the batch
	left   int64 // the work that the batch may still spend, of shared and of its own share
}

func newBudget(shared int64) budget { return budget{total: shared, shared: shared, left: shared} }

// newOwnBudget returns a budget without a shared part.
func newOwnBudget(own int64) budget { return budget{total: boundless, left: own} }

// open begins the next batch of the entry. own is the share of that batch alone.
func (b *budget) open(own int64) {
	b.shared = max(0, min(b.shared, b.left))
	b.left = b.shared + own
}

// ceiling returns the most work that the next request may spend. While no request has used the shared part, there is no
// bound.
func (b *budget) ceiling() int64 {
	if b.shared == b.total && b.left >= b.total {
		return math.MaxInt64
	}
	return b.left
}

// maxWaitingBytes bounds the memory of all waiters for keys, in bytes. All nodes must have the same bound.
const maxWaitingBytes = 256 << 20
