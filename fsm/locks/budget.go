package locks

// These constants bound a step, and give the prices of work in units of the budget. [Table.Begin] sets the budget.
//
// A step completes even if that overdraws the budget. A step is the removal of all ended holds of one lock, the move
// of one flushed lock, the end of one session with all holds and waiters of the session, the end of one wait, or one
// grant to a waiter. [Table.Sweep] begins a step only while the budget lasts. A call for one key removes the ended
// holds of that key's lock even if the budget is spent, but runs the other due events of the lock only while the
// budget lasts.
const (
	// MaxHolders bounds the holds of a lock.
	MaxHolders = 4096
	// MaxPerSession bounds the sum of two counts: the holds of a session, and the queue entries of the session's waiters.
	MaxPerSession = 10_000
	// ChangeUnits is the price of the loss of a hold, of the end of a session, and of an attempt to grant locks to a
	// waiter. It is also the price of the end of a delay, wait or grace, if a due event ends it. A look-up of a lock costs
	// one unit.
	ChangeUnits = 16
	// QueueUnits is the price of joining or leaving one queue. For each waiter, one queue is free.
	QueueUnits = 2
)

// budget is the number of units that the current call may still spend. The number is negative if a step has overdrawn
// the budget.
type budget struct{ units int }

func (b *budget) hasBudget() bool { return b.units > 0 }

func (b *budget) charge(changes, lookups int) { b.units -= changes*ChangeUnits + lookups }

// BudgetLeft returns the units that are left. The result is negative if the budget is overdrawn.
func (b *budget) BudgetLeft() int { return b.units }
