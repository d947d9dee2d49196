//go:build !mutant_stale_read

package replica

// confirmsLeadership is whether a read waits until a majority has confirmed the leader. The partition tests
// build a server in which it does not, and must find out: see jepsen/README.md.
const confirmsLeadership = true
