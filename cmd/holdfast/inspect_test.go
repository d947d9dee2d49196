//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/server/api"
	"github.com/holdfast/holdfast/server/backup"
)

func TestInspectSaysWhatIsInABackup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b")
	var b bytes.Buffer
	w, err := backup.NewWriter(&b, backup.Meta{
		ClusterID: "0123456789abcdef", NodeID: "n1@0123456789ab", Index: 9,
		Term: 2,
	})
	require.NoError(t, err)
	_, err = fsm.New().Snapshot().WriteTo(w)
	require.NoError(t, err)
	_, err = w.Close()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))

	var stdout, stderr strings.Builder
	require.Zero(t, run(t.Context(), []string{"inspect", path}, &stdout, &stderr), stderr.String())
	for _, want := range []string{
		"node n1@0123456789ab of cluster 0123456789abcdef", "index 9, term 2", "right: ",
		"keys           0\n",
	} {
		require.Contains(t, stdout.String(), want)
	}

	stdout.Reset()
	require.Zero(t, run(t.Context(), []string{"inspect", "--json", path}, &stdout, &stderr), stderr.String())
	var doc inspectDocument
	require.NoError(t, json.Unmarshal([]byte(stdout.String()), &doc))
	require.Equal(t, []any{api.Format, path, "n1@0123456789ab", uint64(9), int64(b.Len()), 0},
		[]any{doc.Format, doc.File, doc.Backup.NodeID, doc.Backup.Index, doc.Bytes, doc.Keys})

	require.NoError(t, os.WriteFile(path, b.Bytes()[:b.Len()-1], 0o600))
	stdout.Reset()
	require.Equal(t, 1, run(t.Context(), []string{"inspect", path}, &stdout, &stderr))
	require.Empty(t, stdout.String())
	require.Equal(t, "holdfast inspect: "+path+": it is cut off: the backup was not finished\n", stderr.String())
}

// TestFilesThatAreNone: a pipe is read like a file, and a signal ends the wait for its writer; a folder, and what a
// backup would take the place of, are refused.
func TestFilesThatAreNone(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	for _, words := range [][]string{{"inspect", pipe}, {"restore", pipe, "--data-dir", filepath.Join(dir, "data")}} {
		ended := make(chan int, 1)
		var stdout, stderr strings.Builder
		go func() { ended <- run(ctx, words, &stdout, &stderr) }()
		cancel()
		require.Equal(t, 1, <-ended)
	}
	require.NoDirExists(t, filepath.Join(dir, "data"))

	// The writer is there, and says nothing more.
	ctx, cancel = context.WithCancel(t.Context())
	w, err := os.OpenFile(pipe, os.O_RDWR, 0)
	require.NoError(t, err)
	defer w.Close()
	_, err = w.WriteString("HFBACKUP")
	require.NoError(t, err)
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"inspect", pipe}, io.Discard, io.Discard) }()
	cancel()
	require.Equal(t, 1, <-ended)

	for path, said := range map[string]string{
		dir: "is a folder", pipe: "is no regular file",
		os.DevNull: "is no regular file",
	} {
		var stdout, stderr strings.Builder
		require.Equal(t, 2, run(t.Context(), []string{"backup", "--server", "127.0.0.1:1", path}, &stdout, &stderr))
		require.Contains(t, stderr.String(), said)
	}
	info, err := os.Stat(os.DevNull)
	require.NoError(t, err)
	require.False(t, info.Mode().IsRegular())
	var stdout, stderr strings.Builder
	require.Equal(t, 1, run(t.Context(), []string{"inspect", dir}, &stdout, &stderr))
	require.Contains(t, stderr.String(), "is a directory")
}
