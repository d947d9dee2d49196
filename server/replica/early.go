//go:build !mutant_early_ack

package replica

// answersBeforeCommit is whether a command is applied and answered when it is given to raft. The partition
// tests build a server in which it is, and must find out: see jepsen/README.md.
const answersBeforeCommit = false
