package storetest

import (
	"errors"
	"testing"

	"github.com/holdfast/holdfast/server/store/internal/memdisk"
	"github.com/holdfast/holdfast/server/store/internal/stabletest"
)

// TestStableStore: this store keeps the same contract as the product's: see TestStableStore of package store.
func TestStableStore(t *testing.T) {
	stabletest.Require(t, stabletest.Kind{
		Create: func(p *memdisk.Process) error { return errors.Join(createStable(p, "stable.db"), p.SyncDir(".")) },
		Open:   func(p *memdisk.Process) (stabletest.Store, error) { return openStable(p, "stable.db") },
	})
}
