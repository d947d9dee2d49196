//go:build mutant_wall_lease

package replica

// A server that is wrong on purpose, for the partition tests.
const (
	confirmsLeadership  = true
	answersBeforeCommit = false
	leasesByWallClock   = true
)
