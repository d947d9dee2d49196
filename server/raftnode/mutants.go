//go:build !mutant_stuck_tail

package raftnode

// followsBehindSnapshot is whether entries that a snapshot stands for count as agreed. The partition tests build a
// server in which they do not, and must find out: see jepsen/README.md.
const followsBehindSnapshot = true
