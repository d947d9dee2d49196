//go:build !mutant_no_dedup

package fsm

// appliesOnce: a batch that is in the log twice is skipped the second time. The partition tests
// build a server that applies such a batch again, and must find the fault: see jepsen/README.md.
const appliesOnce = true
