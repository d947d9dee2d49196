//go:build mutant_missed_invalidation

package tracking

// tellsOfOwn is off: see mutants.go.
const tellsOfOwn = false
