package locks

// What bounds one step. A step ends all holds of a lock that are over, or a session with all its holds and waits, and
// is never cut short: MaxHolders and MaxPerSession bound it. Grants of a queue, ends of waits and flushed holds may be
// left to a later step. They run within a budget, in units of work, which [Table.Begin] sets.
const (
	// MaxHolders bounds the holds of a lock.
	MaxHolders = 4096
	// MaxPerSession bounds the holds of a session and its places in queues together.
	MaxPerSession = 10_000
	// ChangeUnits is the price of a change: the end of a hold or of a wait, or a grant. A look-up of a lock costs one
	// unit.
	ChangeUnits = 16
	// QueueUnits is the price of each further queue that a waiter joins or leaves.
	QueueUnits = 2
)

// budget has the units that are left. A step that is never cut short may overdraw it.
type budget struct{ units int }

func (b *budget) hasBudget() bool { return b.units > 0 }

// charge takes the price of some changes and look-ups.
func (b *budget) charge(changes, lookups int) { b.units -= changes*ChangeUnits + lookups }

// chargeQueues takes the price of a waiter that joins or leaves its queues.
func (b *budget) chargeQueues(w *waiter) { b.units -= QueueUnits * (len(w.keys()) - 1) }

// BudgetLeft returns the units that are left. It is negative if the last step took more than there were.
func (b *budget) BudgetLeft() int { return b.units }
