//go:build !mutant_lock_fence && !mutant_lock_short_wait && !mutant_lock_dead_waiter && !mutant_lock_leak && !mutant_lock_session && !mutant_lock_queue_lost

package locks

// The partition tests build servers that are wrong on purpose, and must notice (jepsen/README.md). Such a
// server has the switches of mutants_on.go.
const (
	// fencesAtGrant: a fence is taken when the hold begins, not when its owner got in line.
	fencesAtGrant = true
	// wholeWaits: a wait lasts as long as its client asked for.
	wholeWaits = true
	// removesGone: a waiter whose client is gone leaves the line. Else, blocksGone: no waiter behind it is served; or
	// it is granted like others.
	removesGone, blocksGone = true, false
	// endsAttached: a session that lives with a connection ends when its node was silent for its lease.
	endsAttached = true
	// loadsQueues: who waits is in line after a snapshot.
	loadsQueues = true
)
