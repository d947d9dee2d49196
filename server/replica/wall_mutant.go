//go:build mutant_wall_lease

package replica

// leasesByWallClock is true: a server that is wrong on purpose, for the partition tests.
const leasesByWallClock = true
