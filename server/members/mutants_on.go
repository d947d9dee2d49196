//go:build mutant_kept_id

package members

// mintsIDs is off: see mutants.go.
const mintsIDs = false
