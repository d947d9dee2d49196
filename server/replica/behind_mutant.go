//go:build mutant_stuck_tail

package replica

// followsBehindSnapshot is false: a server that is wrong on purpose, for the partition tests.
const followsBehindSnapshot = false
