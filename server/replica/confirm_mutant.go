//go:build mutant_stale_read

package replica

// confirmsLeadership is false: a server that is wrong on purpose, for the partition tests.
const confirmsLeadership = false
