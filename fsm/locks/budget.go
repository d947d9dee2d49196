package locks

const (
	// StepUnits is what the end of a hold, the end of a wait or a grant takes of the steps that [Table.Begin] grants. A
	// look at a lock takes 1.
	StepUnits = 16
	// PlaceUnits is what it takes that a waiter joins or leaves a queue, beside the first of its queues.
	PlaceUnits = 2
)

// budget is the work that is left for what is due. Ends of waits and grants run while it lasts. The holds of a lock or a
// session, of which a bound says how many there are, end as a whole. That may take more than is left.
type budget struct{ steps int }

// hasSteps reports whether anything is left.
func (b *budget) hasSteps() bool { return b.steps > 0 }

// charge takes steps for so many ends or grants, and so many looks.
func (b *budget) charge(ends, looks int) { b.steps -= ends*StepUnits + looks }

// chargePlaces takes the steps for a waiter that joins or leaves its queues.
func (b *budget) chargePlaces(w *waiter) { b.steps -= PlaceUnits * (len(w.keys()) - 1) }

// Steps is what is left of the steps; below zero if the last thing took more than was left.
func (b *budget) Steps() int { return b.steps }
