//go:build mutant_early_invalidation

package frontend

// foretell tells who tracks the keys of a command before the command goes out.
func (c *conn) foretell(row *row, args [][]byte) {
	if !row.write {
		return
	}
	positions, _ := row.KeyPositions(args)
	for _, p := range positions {
		c.srv.cfg.Tracking.Foretell(string(args[p]))
	}
}
