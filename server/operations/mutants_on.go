//go:build mutant_replace_keeps

package operations

// replacedGo is off: see mutants.go.
const replacedGo = false
