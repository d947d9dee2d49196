// Package nemesis breaks what a schedule says, and mends it.
//
// It promises: each fault is on record with the time it began and was over, and the nodes that were
// hit; everything is whole again when [Nemesis.Run] has returned, and every member
// runs.
//
// The faults by lane: net.go, process.go, hooks.go (clocks, disks and raft through the server's
// debug commands), files.go (damaged stores), holders.go (clients that freeze or vanish),
// releases.go (nodes whose program is replaced).
// Goroutines: one for each step that has begun.
// Start reading at [Nemesis.Run].
package nemesis
