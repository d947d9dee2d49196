// Package replicatest is a cluster of replicas in memory, for tests in virtual time: real raft,
// real forwarding, real state machines. The network, the disks and the clocks are simulated and can
// be made to misbehave. Package servertest makes whole servers of the replicas by [Options.Server].
//
// The package promises that inside a testing/synctest bubble nothing waits in real time, that a
// crashed node leaves only a disk behind, and that when the test ends every goroutine has ended.
// [Seed] has raft's timeouts drawn from a seed. The package does not promise that two runs are alike:
// goroutines interleave at will.
//
// Start reading at [New], then [Node.Start].
package replicatest
