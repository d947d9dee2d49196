// Package checker judges histories.
//
// It promises: a history called [Invalid] cannot have come from a server that keeps
// Holdfast's promises, for the checkers never report what clocks and unknown outcomes
// can explain; and a history called [Valid] was looked at: too few operations, or a
// search that ran out of time, give [Unknown]. The tests hold histories that are
// wrong on purpose, and a checker must refuse each.
//
// Two kinds stand side by side. Models of package porcupine (models.go, lock.go,
// list.go) decide linearizability exactly, key by key; counters have a quicker way to the
// same answer (linear_ones.go). Direct checks look at a whole history in one
// pass and say in words what is wrong: exclusion.go (two holders, lost
// leases), ttl.go, counter.go, list.go, set.go, queue.go, messages.go,
// caches.go, sharing.go. availability.go only counts.
//
// What a lease promises, and what the checkers therefore hold the server to:
// a holder counts a lease from before the request was sent, on the holder's own
// monotonic clock, for ttl × (1 − drift), where drift is the bound on the error of clock
// rates under which the promise is given (zero unless a run bends rates). A holder stops to
// believe when the release is sent. Nothing is promised after that.
//
// Workloads say which checkers apply. Start reading at [Result].
package checker
