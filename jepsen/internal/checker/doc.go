// Package checker judges histories.
//
// It promises: what it calls [Invalid] cannot have come from a server that keeps
// Holdfast's promises, for it never reports what clocks and unknown outcomes
// can explain; and what it calls [Valid] it has looked at: too few operations, or a
// search that ran out of time, give [Unknown]. The tests hold histories that are
// wrong on purpose, each of which a checker must find.
//
// Two kinds stand side by side. Models of package porcupine (models.go, lock.go,
// txn.go) decide linearizability exactly, key by key. Direct checks look at a whole history in one
// pass and say in words what is wrong: exclusion.go (two holders, lost
// leases), ttl.go, counter.go, list.go, set.go. availability.go only counts.
//
// What a lease promises, and what its checkers therefore hold the server to:
// a holder counts its lease from before it sent the request, on its own
// monotonic clock, for ttl × (1 − drift), where drift is the bound on the error of clock
// rates under which the promise is given (zero unless a run bends rates). It stops to
// believe when it sends the release. Nothing is promised after that.
//
// Workloads say which checkers apply. Start reading at [Result].
package checker
