// Package cluster runs what is tested: real processes, and what can be done to them.
//
// There are three targets: Holdfast, a single Redis, and Redis with Sentinel (one primary, two replicas,
// three sentinels). Each is a [Target]: members that can be killed, frozen and
// started again, and nodes that clients connect to.
//
// It promises: no process outlives the program; a process that ends by
// itself, without a fault that excuses the end, is reported ([Target.Findings]) and fails the run.
//
// Goroutines: one waits for each process; one, bound to an OS thread, starts them all, as the kernel
// ends a process's children with the thread that started them. Start reading at [Target], then fleet.go.
package cluster
