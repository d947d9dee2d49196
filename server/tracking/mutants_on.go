//go:build mutant_missed_invalidation || mutant_early_invalidation

package tracking

// tellsOfOwn is off: see mutants.go.
const tellsOfOwn = false

// Foretell tells of a change that a client is about to make.
func (t *Table) Foretell(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(key, nil)
	t.broadcast([]change{{key, nil}})
	t.start()
}
