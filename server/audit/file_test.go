//go:build unix

package audit

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
)

// TestFileMovedByOthers shows that if another program renames, removes or truncates the file, later lines are in a new
// file, or in the truncated one.
func TestFileMovedByOthers(t *testing.T) { synctest.Test(t, testFileMovedByOthers) }

func testFileMovedByOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := opened(t, path, nil)
	apply := func(index uint64) {
		time.Sleep(checkEvery)
		l.Changes(index, []event.LockChange{changed("k", "a", event.LockGranted)})
		time.Sleep(2 * gatherFor)
	}
	apply(1)
	require.NoError(t, os.Rename(path, path+"-old"))
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	apply(2)
	require.Equal(t, []string{"c1 1.0 granted k a"}, events(told(t, path+"-old")))
	require.Equal(t, []string{"c1 2.0 granted k a"}, events(told(t, path)))
	require.NoError(t, os.Remove(path))
	apply(3)
	require.Equal(t, []string{"c1 3.0 granted k a"}, events(told(t, path)))
	require.NoError(t, os.Truncate(path, 0))
	apply(4)
	require.Equal(t, []string{"c1 4.0 granted k a"}, events(told(t, path)))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.Equal(t, info.Size(), l.out.(*files).size)
	require.Zero(t, l.Dropped())
}

// TestRotationFails shows that if a file cannot be renamed, lines are appended to the current one, no older file is
// lost, and the rotation is repeated after rotateEvery.
func TestRotationFails(t *testing.T) {
	for _, blocked := range []int{0, FileCount - 1} {
		t.Run(fmt.Sprint(blocked), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testRotationFails(t, blocked) })
		})
	}
}

func testRotationFails(t *testing.T, blocked int) {
	path := filepath.Join(t.TempDir(), "audit.log")
	older := (&files{path: path}).older
	for n := 1; n < FileCount; n++ {
		if n != blocked {
			require.NoError(t, os.WriteFile(older(n), fmt.Appendf(nil, "old %d\n", n), 0o600))
		}
	}
	var logged bytes.Buffer
	l := opened(t, path, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&logged, nil)) })
	require.NoError(t, os.MkdirAll(filepath.Join(older(blocked), "x"), 0o700))
	key, index := strings.Repeat("k", 1000), uint64(0)
	apply := func() {
		for range 4 {
			for range 400 {
				index++
				l.Changes(index, []event.LockChange{changed(key, "a", event.LockGranted)})
			}
			time.Sleep(2 * gatherFor)
		}
	}
	apply()
	require.Equal(t, 1, strings.Count(logged.String(), "rotate audit log"), logged.String())
	require.Len(t, events(told(t, path)), int(index))
	for n := 1; n < FileCount; n++ {
		if n != blocked {
			text, err := os.ReadFile(older(n))
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("old %d\n", n), string(text))
		}
	}
	require.NoError(t, os.RemoveAll(older(blocked)))
	time.Sleep(rotateEvery)
	apply()
	require.NoError(t, l.Close())
	require.Zero(t, l.Dropped())
	require.NoFileExists(t, older(0))
	text, err := os.ReadFile(older(FileCount - 1))
	require.NoError(t, err)
	require.Contains(t, string(text), "old ")
	var paths []string
	for n := 1; n < FileCount; n++ {
		paths = append(paths, older(n))
	}
	require.Len(t, events(trailOf(t, append(paths, path)...).Lines), int(index))
}

// TestRotationInterrupted shows that a process continues the file of one that was killed during a rotation.
func TestRotationInterrupted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := opened(t, path, nil)
	l.Changes(5, []event.LockChange{changed("k", "a", event.LockGranted)})
	require.NoError(t, l.Close())
	require.NoError(t, os.Rename(path, path+".0"))
	l = opened(t, path, nil)
	require.Equal(t, mark{"c1", 5, 0}, l.written)
	require.NoError(t, l.Close())
	require.NoFileExists(t, path+".0")
}

// TestRefusedFiles shows that the log does not follow symbolic links, does not wait for a named pipe, and does not
// write to the file of another process.
func TestRefusedFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	refused := func(want string) {
		t.Helper()
		_, err := Open(Config{Path: path, Bytes: 8 << 20, Logger: slog.New(slog.DiscardHandler)})
		require.ErrorContains(t, err, want)
	}
	victim := path + ".victim"
	require.NoError(t, os.WriteFile(victim, []byte("precious\n"), 0o644))
	require.NoError(t, os.Symlink(victim, path))
	refused("is a symbolic link: name the file itself")
	require.ErrorContains(t, Check(path), "is a symbolic link")
	info, err := os.Stat(victim)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), info.Mode())
	require.NoError(t, os.Remove(path))

	require.NoError(t, Check(path))
	require.NoFileExists(t, path)
	require.NoError(t, os.Symlink(victim, path+".1"))
	refused(".1 is a symbolic link")
	require.NoError(t, os.Remove(path+".1"))
	require.NoError(t, syscall.Mkfifo(path+".1", 0o600))
	refused(".1 is no regular file")
	require.NoError(t, os.Remove(path+".1"))

	l := opened(t, path, nil)
	refused("another process writes " + path)
	require.NoError(t, Check(path))
	require.NoError(t, l.Close())
	require.NoError(t, opened(t, path, nil).Close())
	require.ErrorContains(t, Check(filepath.Join(path, "x")), "not a directory")
}

// TestLastMark shows that lastMark finds the last line of the replicated log, whatever follows it.
func TestLastMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := opened(t, path, nil)
	l.Changes(7, []event.LockChange{changed("k", "a", event.LockGranted)})
	require.NoError(t, l.Close())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	own := `{"n":3,"run":5,"index":9,"event":"restored"}` + "\n"
	for name, tail := range map[string]string{
		"nothing":         "",
		"torn":            strings.Repeat("x", 2<<20),
		"no line":         strings.Repeat("x", 2<<20) + "\n",
		"the node's own":  strings.Repeat(own, 3*blockBytes/len(own)),
		"across a border": strings.Repeat("\n", blockBytes-len(text)/2),
		"up to a border":  strings.Repeat("\n", blockBytes),
	} {
		require.NoError(t, os.WriteFile(path, append(bytes.Clone(text), tail...), 0o600))
		last, err := lastMark(path)
		require.NoError(t, err)
		require.Equal(t, mark{"c1", 7, 0}, last, name)
	}
}
