package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/server/backup"
)

func TestInspectSaysWhatIsInABackup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b")
	var b bytes.Buffer
	w, err := backup.NewWriter(&b, backup.Meta{ClusterID: "0123456789abcdef", NodeID: "n1@0123456789ab", Index: 9, Term: 2})
	require.NoError(t, err)
	_, err = fsm.New().Snapshot().WriteTo(w)
	require.NoError(t, err)
	_, err = w.Close()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))

	var stdout, stderr strings.Builder
	require.Zero(t, run(t.Context(), []string{"inspect", path}, &stdout, &stderr), stderr.String())
	for _, want := range []string{"node n1@0123456789ab of cluster 0123456789abcdef", "index 9, term 2", "right: ", "keys           0\n"} {
		require.Contains(t, stdout.String(), want)
	}

	require.NoError(t, os.WriteFile(path, b.Bytes()[:b.Len()-1], 0o600))
	stdout.Reset()
	require.Equal(t, 1, run(t.Context(), []string{"inspect", path}, &stdout, &stderr))
	require.Empty(t, stdout.String())
	require.Equal(t, "holdfast inspect: "+path+": it is cut off: the backup was not finished\n", stderr.String())
}
