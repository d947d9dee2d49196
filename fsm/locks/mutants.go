//go:build !mutant_lock_fence && !mutant_lock_short_wait

package locks

// The partition tests build servers that are wrong on purpose, and must notice (jepsen/README.md). Such a
// server has the switches of mutants_on.go.
const (
	// fencesAtGrant: a fence is taken when the hold begins, not when its owner got in line.
	fencesAtGrant = true
	// wholeWaits: a wait lasts as long as its client asked for.
	wholeWaits = true
)
