//go:build !mutant_replace_keeps

package operations

// The partition tests build servers that are wrong on purpose, and must notice (jepsen/README.md). Such a
// server has the switch of mutants_on.go.

// replacedGo is whether a member that was replaced is removed.
const replacedGo = true
