//go:build !mutant_stuck_tail

package raftnode

// The partition tests build servers that are wrong on purpose, and must notice (jepsen/README.md). Such a
// server has the switch of mutants_on.go.

// followsBehindSnapshot is whether entries that a snapshot stands for count as agreed.
const followsBehindSnapshot = true
