package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRestoreDrill: a backup that went through a pipe is proved to be one that can be restored, and nothing is left of
// the proof; what is cut off is not.
func TestRestoreDrill(t *testing.T) {
	if testing.Short() {
		t.Skip("processes")
	}
	exe := build(t)
	n := startNodes(t, exe, 1)[0]
	waitServing(t, n)
	c := client(t, n)
	require.NoError(t, c.Do(t.Context(), "LOCK.ACQUIRE", "job", "me", "PX", "600000").Err())
	require.NoError(t, c.SetNX(t.Context(), "stock", "token", 600_000_000_000).Err())
	require.NoError(t, c.Do(t.Context(), "SELECT", "3").Err())
	require.NoError(t, c.Set(t.Context(), "plain", "v", 0).Err())
	folder := t.TempDir()
	whole, cut := filepath.Join(folder, "whole"), filepath.Join(folder, "cut")
	piped := exec.Command("sh", "-c", `"$0" backup --server "$1" - | cat > "$2"`, exe, n.addr, whole)
	out, err := piped.CombinedOutput()
	require.NoError(t, err, "%s", out)
	n.Kill()
	text, err := os.ReadFile(whole)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(cut, text[:len(text)/2], 0o600))

	run := func(words ...string) (string, error) {
		cmd := exec.Command(exe, append([]string{"restore"}, words...)...)
		tmp := t.TempDir()
		cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
		out, err := cmd.CombinedOutput()
		left, failed := os.ReadDir(tmp)
		require.NoError(t, failed)
		require.Empty(t, left)
		return string(out), err
	}
	said, err := run(whole, "--drill")
	require.NoError(t, err, said)
	require.Contains(t, said, whole+" can be restored: a node served its 3 keys, 2 locks among them, after ")
	said, err = run(cut, "--drill")
	require.Error(t, err)
	require.Contains(t, said, "cut off")
	said, err = run(whole, "--drill", "--data-dir", folder)
	require.Error(t, err)
	require.Contains(t, said, "say no --data-dir")
}

// TestBackupUnit: the script of the unit takes a backup, and then removes old ones; when it fails, none is removed.
func TestBackupUnit(t *testing.T) {
	if testing.Short() {
		t.Skip("processes")
	}
	exe, folder := build(t), t.TempDir()
	n := startNodes(t, exe, 1)[0]
	waitServing(t, n)
	unit, err := os.ReadFile("packaging/holdfast-backup.service")
	require.NoError(t, err)
	script := regexp.MustCompile(`(?s)ExecStart=/bin/sh -ec '(.*?)'`).FindStringSubmatch(string(unit))
	require.NotNil(t, script)
	text := strings.NewReplacer("$$", "$", "%%", "%", "\\\n", "", "/usr/bin/holdfast", exe, "/var/lib/holdfast-backup",
		folder).Replace(script[1])
	keep := regexp.MustCompile(`(?m)^Environment=(KEEP_DAYS=.*)$`).FindStringSubmatch(string(unit))
	require.NotNil(t, keep)
	old, young := filepath.Join(folder, "old.bak"), filepath.Join(folder, "young.bak")
	for file, age := range map[string]time.Duration{old: 16, young: 13} {
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		then := time.Now().Add(-age * 24 * time.Hour)
		require.NoError(t, os.Chtimes(file, then, then))
	}
	run := func() error {
		cmd := exec.Command("/bin/sh", "-ec", text)
		cmd.Env = append(os.Environ(), "HOLDFAST_SERVER="+n.addr, keep[1])
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		return err
	}
	files := func() []string {
		all, err := filepath.Glob(folder + "/*.bak")
		require.NoError(t, err)
		return all
	}
	n.Kill()
	require.Error(t, run())
	require.Len(t, files(), 2, "the last good ones stay")
	n.start(t)
	waitServing(t, n)
	require.NoError(t, run())
	require.Len(t, files(), 2)
	require.NoFileExists(t, old)
	require.FileExists(t, young)
}
