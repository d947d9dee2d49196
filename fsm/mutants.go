//go:build !mutant_no_dedup && !mutant_lost_wakeup && !mutant_served_twice

package fsm

// The partition tests build servers that are wrong on purpose, and must notice (jepsen/README.md). Such a
// server has the switches of mutants_on.go.
const (
	// appliesOnce is whether a batch that is in the log twice is skipped the second time.
	appliesOnce = true
	// wakesWaiters is whether a key that gets a value serves those who wait for it.
	wakesWaiters = true
	// servesOnce is whether a waiter that was served leaves the queue.
	servesOnce = true
)
