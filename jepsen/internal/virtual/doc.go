// Package virtual runs the partition tests in virtual time; it has only tests.
//
// The workloads, schedules, nemeses and checkers are the program's. They test the server's real code, including raft,
// forwarding, state machines and RESP, on a network, disks and clocks in memory (server/servertest), inside a bubble of
// testing/synctest. Half a minute of faults takes half a second of CPU: a hundred seeds take as long as one run of the
// program.
//
// A seed determines the schedule, the clients' choices and raft's timeouts. The goroutines' order is not determined, so
// an invalid run is repeated, and the report counts how often the seed failed again.
//
// A pause is weaker than SIGSTOP, since the goroutines of a bubble cannot be stopped from outside: the node is cut off
// and its clock stops, but its raft continues. In half of the runs one node believes for seconds that it leads, as a
// frozen leader does. A bad disk spares terms and votes, over which raft panics. Damaged files and lost packets need
// the program.
//
// Disks have a page cache: unsynced writes of a process can be read by the next process until the power is cut. The
// faults power-append and power-sync, possible only here, do to each entry what power-window does to a real disk by
// chance.
//
// Each run ends with the epilogue of package nemesis. A stubborn node (worldOptions) gets more time.
//
// Members change by package reconfig, and for a third of the seeds by raft's own changes, which nothing refuses.
// Bootstrap and the wire need the program.
//
// Start reading at world_test.go.
package virtual
