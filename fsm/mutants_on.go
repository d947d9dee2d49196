//go:build mutant_no_dedup

package fsm

// appliesOnce is false in a server that is wrong on purpose, for the partition tests.
const appliesOnce = false
