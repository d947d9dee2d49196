// Package virtual runs the partition tests in virtual time: there are only tests.
//
// The workloads, the schedules, the nemeses and the checkers are the program's. Beneath them stands
// the server's real code, with raft, forwarding, state machines and RESP, on a network, disks and
// clocks in memory (server/servertest), inside a bubble of testing/synctest: half a minute of
// faults takes half a second of CPU. What the program does with one process tree in a minute, this
// does with a hundred seeds.
//
// A seed names the schedule, the clients' choices and raft's timeouts. Goroutines interleave at will, so no two runs
// are equal: an invalid run is repeated, and the report counts how often the seed failed again.
//
// A pause is less than SIGSTOP, as the goroutines of a bubble cannot be stopped from outside: the
// node is cut off from all others and its clock stands, but its raft goes on. In half of the runs
// one node is made to believe for seconds that it leads, as a frozen leader does. A bad disk spares
// terms and votes, over which raft panics. Damaged files and lost packets need the program.
//
// Disks have a page cache: what a process wrote and did not sync is there for the next process,
// until the power is cut. The faults power-append and power-sync, which only these disks can make,
// do to each entry what power-window does to a real disk with luck.
//
// Each run ends with the epilogue of package nemesis. A node that is stubborn, as worldOptions has it, gets more time.
//
// Members come and go as package reconfig has it, and for a third of the seeds by raft's own changes, which nothing
// refuses. Founding and the wire need the program.
//
// Start reading at world_test.go.
package virtual
