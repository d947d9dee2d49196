// Package workload is what the generator does to a target: pairs of acquire and
// release, waiting for a hot lock, reads, pipelines, a million held locks, and so on.
//
// It promises that two targets get the same work: keys, sizes, order of steps and
// pauses depend on the workload alone; and that a lock that was not there to be
// released, or was not free when no other client wanted it, is an error of the run. Whether two
// can hold a lock at once is not asked here: that is what package jepsen is for.
//
// Start reading at [All].
package workload
