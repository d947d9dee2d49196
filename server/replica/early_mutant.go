//go:build mutant_early_ack

package replica

// answersBeforeCommit is true: a server that is wrong on purpose, for the partition tests.
const answersBeforeCommit = true
