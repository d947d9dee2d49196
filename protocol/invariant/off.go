//go:build !invariants && !race

package invariant

// On says that checks run.
const On = false
