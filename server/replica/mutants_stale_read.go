//go:build mutant_stale_read

package replica

// A server that is wrong on purpose, for the partition tests.
const (
	confirmsLeadership  = false
	answersBeforeCommit = false
	leasesByWallClock   = false
)
