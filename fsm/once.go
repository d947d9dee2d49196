//go:build !mutant_no_dedup

package fsm

// appliesOnce is whether a batch that is in the log twice is skipped the second time. The partition tests
// build a server in which it is not, and must find out: see jepsen/README.md.
const appliesOnce = true
