package store

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// copyOf replaces a file or a folder by a copy.
func copyOf(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.Rename(path, path+".moved"))
	stat, err := os.Stat(path + ".moved")
	require.NoError(t, err)
	if stat.IsDir() {
		require.NoError(t, os.CopyFS(path, os.DirFS(path+".moved")))
		return
	}
	content, err := vfs.ReadFile(vfs.OS{}, path+".moved")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, content, 0o600))
}

// newestLogFile returns the segment that appends go to.
func newestLogFile(t *testing.T, dir string) string {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(dir, walName, "*1.seg"))
	require.NoError(t, err)
	require.NotEmpty(t, segments)
	return segments[0]
}

// TestMissingFolderIsReported: a folder is removed or replaced while its node runs, whole or in part. Within seconds
// OnFault gets one line that names the part.
func TestMissingFolderIsReported(t *testing.T) {
	remove := func(t *testing.T, path string) { require.NoError(t, os.RemoveAll(path)) }
	for name, row := range map[string]struct {
		part   func(t *testing.T, dir string) string
		damage func(t *testing.T, path string)
	}{
		"removed":           {func(_ *testing.T, dir string) string { return dir }, remove},
		"replaced":          {func(_ *testing.T, dir string) string { return dir }, copyOf},
		"log removed":       {func(t *testing.T, dir string) string { return newestLogFile(t, dir) }, remove},
		"log replaced":      {func(t *testing.T, dir string) string { return newestLogFile(t, dir) }, copyOf},
		"terms removed":     {func(t *testing.T, dir string) string { return filepath.Join(dir, stableName) }, remove},
		"identity removed":  {func(t *testing.T, dir string) string { return filepath.Join(dir, identityName) }, remove},
		"snapshots removed": {func(t *testing.T, dir string) string { return filepath.Join(dir, snapshotName) }, remove},
		"a file in their place": {func(_ *testing.T, dir string) string { return dir }, func(t *testing.T, path string) {
			remove(t, path)
			require.NoError(t, os.WriteFile(path, nil, 0o600))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(memoryDir(t), "data")
			synctest.Test(t, func(t *testing.T) {
				c := config(dir)
				faults := make(chan error, 1)
				c.Hooks.OnFault = func(op Op, err error) { faults <- err }
				s := mustOpen(t, c)
				require.NoError(t, s.Log.StoreLogs(entries(1, 3)))
				time.Sleep(5 * time.Second)
				require.Empty(t, faults)
				part := row.part(t, dir)
				row.damage(t, part)
				time.Sleep(2 * watchEvery)
				synctest.Wait()
				require.Len(t, faults, 1)
				err := <-faults
				require.ErrorContains(t, err, "the data folder "+dir+" is not there any more")
				require.ErrorContains(t, err, part)
			})
		})
	}
}

// partly is a file system that lacks a part of the folder, or returns an error.
type partly struct {
	vfs.OS
	missing string
	err     error
}

func (p partly) Exists(name string) (bool, error) {
	return filepath.Base(name) != p.missing && p.err == nil, p.err
}

// placed is a log whose file is missing, or whose disk returns an error.
type placed struct {
	logStore
	missing string
	err     error
}

func (p placed) Gone() (string, error) { return p.missing, p.err }
func (p placed) Close() error          { return p.err }

// TestLogThatCannotBeClosed: the error is returned.
func TestLogThatCannotBeClosed(t *testing.T) {
	require.ErrorIs(t, (&folder{log: placed{err: syscall.EIO}}).close(), syscall.EIO)
}

// TestMissingPartOfAFolder: the first missing part is named. After an error of the disk none is.
func TestMissingPartOfAFolder(t *testing.T) {
	for _, row := range []struct {
		log  placed
		fs   partly
		want string
	}{
		{},
		{placed{missing: "1.seg"}, partly{}, "1.seg"},
		{placed{}, partly{missing: snapshotName}, snapshotName},
		{placed{missing: "1.seg"}, partly{missing: snapshotName}, "1.seg"},
		{placed{err: syscall.EIO}, partly{missing: snapshotName}, ""},
		{placed{}, partly{err: syscall.EIO}, ""},
	} {
		err := (&folder{Device: Device{FS: row.fs}, log: row.log}).gone()
		if row.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, row.want+" was removed, replaced or unmounted")
	}
}

// TestFolderThatIsThere: no change that a node makes in its own folder is a fault, and neither is a change after Close.
func TestFolderThatIsThere(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "data")
	synctest.Test(t, func(t *testing.T) {
		c := config(dir)
		c.Hooks.OnFault = func(op Op, err error) { require.NoError(t, err) }
		s := mustOpen(t, c)
		time.Sleep(watchEvery) // the log is empty
		for i := range uint64(5) {
			large := entries(10*i+1, 10*i+10)
			large[0].Data = make([]byte, 12<<20) // in a segment of its own
			require.NoError(t, s.Log.StoreLogs(large))
			time.Sleep(watchEvery)
		}
		require.NoError(t, s.Log.DeleteRange(41, 50))
		time.Sleep(watchEvery)
		sink, err := s.Snapshots.Create(1, 40, 1, raft.Configuration{}, 1, nil)
		require.NoError(t, err)
		_, err = io.WriteString(sink, "state")
		require.NoError(t, err)
		require.NoError(t, sink.Close())
		require.NoError(t, s.Log.DeleteRange(1, 40))
		require.NoError(t, s.SetIdentity(func(id *Identity) { id.ClusterID = "c" }))
		time.Sleep(watchEvery)
		require.NoError(t, s.Close())
		require.NoError(t, os.RemoveAll(dir))
		time.Sleep(5 * time.Second)
	})
}

// TestLookingEndsWithTheStore: a closed store does not check its folder any more, and neither does one whose folder is
// missing.
func TestLookingEndsWithTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looked atomic.Int64
		g := newGuard(Hooks{})
		g.watch(func() error {
			looked.Add(1)
			return nil
		})
		time.Sleep(3*watchEvery + 1)
		require.EqualValues(t, 3, looked.Load())
		g.closing.Store(true)
		time.Sleep(5 * watchEvery)
		require.EqualValues(t, 3, looked.Load())

		newGuard(Hooks{}).watch(func() error {
			looked.Add(1)
			return errors.New("the folder is missing")
		})
		time.Sleep(5 * watchEvery)
		require.EqualValues(t, 4, looked.Load())
	})
}
