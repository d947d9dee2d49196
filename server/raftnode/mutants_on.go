//go:build mutant_stuck_tail

package raftnode

// followsBehindSnapshot is false: a server that is wrong on purpose, for the partition tests.
const followsBehindSnapshot = false
