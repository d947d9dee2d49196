package locks

// These constants bound one step. A step always completes: it removes all ended holds of a lock, or ends a session with
// all its holds and waits, even if the budget is spent. Grants of a queue, ends of waits and losses of flushed holds
// run only while the budget lasts; later steps run the rest. [Table.Begin] sets the budget, which counts units of work.
const (
	// MaxHolders bounds the holds of a lock.
	MaxHolders = 4096
	// MaxPerSession bounds the sum of a session's holds and queue entries.
	MaxPerSession = 10_000
	// ChangeUnits are charged for a change, which is the end of a hold, the end of a wait, or a grant. A look-up of a lock
	// is charged one unit.
	ChangeUnits = 16
	// QueueUnits are charged for each queue beyond the first that a waiter joins or leaves.
	QueueUnits = 2
)

// budget is a soft bound on the work of the present call. A step completes even if that overdraws the budget.
type budget struct{ units int }

func (b *budget) hasBudget() bool { return b.units > 0 }

func (b *budget) charge(changes, lookups int) { b.units -= changes*ChangeUnits + lookups }

// chargeQueues charges the queues that a waiter joins or leaves.
func (b *budget) chargeQueues(w *waiter) { b.units -= QueueUnits * (len(w.keys()) - 1) }

// BudgetLeft returns the units that are left. A negative number is the overdraft.
func (b *budget) BudgetLeft() int { return b.units }
