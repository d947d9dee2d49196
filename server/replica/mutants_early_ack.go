//go:build mutant_early_ack

package replica

// A server that is wrong on purpose, for the partition tests.
const (
	confirmsLeadership  = true
	answersBeforeCommit = true
	leasesByWallClock   = false
)
