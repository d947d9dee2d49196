package locks

const (
	// StepUnits is the price of a step, in the units that [Table.Begin] grants: the end of a hold or of a wait, or a
	// grant. A look-up of a lock costs one unit.
	StepUnits = 16
	// PlaceUnits is the price of each further queue that a waiter joins or leaves.
	PlaceUnits = 2
)

// budget is the number of units left for what is due. Waits end and grants are made while it lasts. The holds of a
// lock, or of a session, end together, within [MaxHolders] and [MaxSession]; those may overdraw the budget.
type budget struct{ steps int }

// hasSteps reports whether the budget has units left.
func (b *budget) hasSteps() bool { return b.steps > 0 }

// charge takes the price of some ends or grants, and of some look-ups.
func (b *budget) charge(ends, looks int) { b.steps -= ends*StepUnits + looks }

// chargePlaces takes the price of a waiter that joins or leaves its queues.
func (b *budget) chargePlaces(w *waiter) { b.steps -= PlaceUnits * (len(w.keys()) - 1) }

// Steps returns the units left; below zero if the last step took more than there were.
func (b *budget) Steps() int { return b.steps }
