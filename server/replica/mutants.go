//go:build !mutant_early_ack && !mutant_stale_read && !mutant_wall_lease

package replica

// The partition tests build servers that are wrong on purpose, and must notice (jepsen/README.md). Such a
// server has the switches of mutants_on.go.
const (
	// answersBeforeCommit is whether a command is applied and answered when it is given to raft.
	answersBeforeCommit = false
	// confirmsLeadership is whether a read waits until a majority has confirmed the leader.
	confirmsLeadership = true
	// leasesByWallClock is whether leases run by the time of day.
	leasesByWallClock = false
)
