//go:build !mutant_kept_id

package members

// The partition tests build servers that are wrong on purpose, and must notice (jepsen/README.md). Such a
// server has the switch of mutants_on.go.

// mintsIDs is whether the ID of a node is its folder's, and not its name's.
const mintsIDs = true
