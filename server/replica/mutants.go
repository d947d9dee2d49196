//go:build !mutant_stale_read && !mutant_early_ack && !mutant_wall_lease

package replica

// The partition tests build servers in which one of these is the other way round, and must find the fault: see
// jepsen/README.md.
const (
	// confirmsLeadership is whether a read waits until a majority has confirmed the leader.
	confirmsLeadership = true
	// answersBeforeCommit is whether a command is applied and answered when it is given to raft.
	answersBeforeCommit = false
	// leasesByWallClock is whether leases run by the time of day.
	leasesByWallClock = false
)
