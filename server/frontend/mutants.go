//go:build !mutant_early_invalidation

package frontend

// foretell does nothing. A server that is wrong on purpose (jepsen/README.md) has another: see mutants_on.go.
func (c *conn) foretell(*row, [][]byte) {}
