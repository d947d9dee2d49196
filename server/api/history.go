package api

// History is a document about the last hour, and about losses.
type History struct {
	Format int    `json:"format"`
	Node   string `json:"node"`
	// NowUnixMillis is the node's clock. Steps are the last hour, the oldest first; the last one is not over yet.
	NowUnixMillis int64  `json:"nowUnixMillis"`
	StepMillis    int64  `json:"stepMillis"`
	Steps         []Step `json:"steps"`
}

// Step counts what clients of all nodes did within a step, as this node applied it.
type Step struct {
	StartUnixMillis int64 `json:"startUnixMillis"`
	// Counted: the node counted during all of the step. Else it started later, and what is missing is 0.
	Counted bool `json:"counted"`
	Counts
}

// Counts are about locks.
type Counts struct {
	Grants   uint64 `json:"grants"`   // new holds
	Waits    uint64 `json:"waits"`    // waits that ended with a grant
	TimedOut uint64 `json:"timedOut"` // waits that ended by time, without a grant
	Lost     uint64 `json:"lost"`     // holds that ended before they were released
}

// Add adds what was counted between two totals.
func (c *Counts) Add(from, to Counts) {
	more := func(n *uint64, from, to uint64) { *n += to - min(from, to) }
	more(&c.Grants, from.Grants, to.Grants)
	more(&c.Waits, from.Waits, to.Waits)
	more(&c.TimedOut, from.TimedOut, to.TimedOut)
	more(&c.Lost, from.Lost, to.Lost)
}
