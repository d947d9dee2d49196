// Package virtual runs the partition tests in virtual time: it has only tests.
//
// The workloads, the schedules, the nemeses and the checkers are those of the program. Beneath them
// stands the server's real code, with raft, forwarding, state machines and RESP, on a network, disks and clocks in
// memory (server/replica/replicatest), inside a bubble of testing/synctest: a minute
// passes in a second or so. What the program does with one process tree in a minute,
// this does with dozens of seeds.
//
// It promises no equal runs: raft draws its time-outs from a source that cannot be seeded, and
// goroutines interleave as they like. A seed names the schedule and the clients' choices.
//
// It cannot freeze a process (the goroutines of a bubble cannot be stopped from outside), nor cut the
// power under a real disk: the program does.
//
// Start reading at world_test.go.
package virtual
