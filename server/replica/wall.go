//go:build !mutant_wall_lease

package replica

// leasesByWallClock is whether leases run by the time of day. The partition tests build a server
// in which they do, and must find out: see jepsen/README.md.
const leasesByWallClock = false
