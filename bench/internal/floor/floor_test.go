package floor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	f, err := Measure(dir)
	require.NoError(t, err)
	require.Positive(t, f.AppendSyncMicros)
	require.Positive(t, f.OverwriteSyncMicros)
	require.Positive(t, f.RoundTripMicros)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	_, err = Measure(filepath.Join(dir, "missing"))
	require.ErrorContains(t, err, "measure the disk")
}
