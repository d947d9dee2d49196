//go:build mutant_stuck_tail

package raftnode

// followsBehindSnapshot is off: see mutants.go.
const followsBehindSnapshot = false
