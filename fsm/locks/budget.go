package locks

const (
	// StepUnits is the price of a step, in the units that [Table.Begin] grants: the end of a hold, the end of a wait, or a
	// grant. A look at a lock costs 1.
	StepUnits = 16
	// PlaceUnits is the price of each further queue that a waiter joins or leaves.
	PlaceUnits = 2
)

// budget is the number of units left for what is due. Waits end and grants are made while it lasts. The holds of a lock
// or of a session end together, since [MaxHolders] and [MaxSession] bound them; the budget may be overdrawn by that.
type budget struct{ steps int }

// hasSteps reports whether anything is left.
func (b *budget) hasSteps() bool { return b.steps > 0 }

// charge takes steps for so many ends or grants, and so many looks.
func (b *budget) charge(ends, looks int) { b.steps -= ends*StepUnits + looks }

// chargePlaces takes the steps for a waiter that joins or leaves its queues.
func (b *budget) chargePlaces(w *waiter) { b.steps -= PlaceUnits * (len(w.keys()) - 1) }

// Steps is what is left of the steps; below zero if the last thing took more than was left.
func (b *budget) Steps() int { return b.steps }
