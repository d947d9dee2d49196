//go:build !mutant_missed_invalidation && !mutant_early_invalidation

package tracking

// The partition tests build servers that are wrong on purpose, and must notice (jepsen/README.md). Such a
// server has the switch of mutants_on.go.

// tellsOfOwn is whether clients hear of what other clients of their own node changed.
const tellsOfOwn = true
