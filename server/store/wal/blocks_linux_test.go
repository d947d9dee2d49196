//go:build linux && (amd64 || arm64)

package wal

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// bytesRead returns the bytes that the disk has read for this thread.
func bytesRead(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/thread-self/io")
	if err != nil {
		t.Skip("the kernel does not count:", err)
	}
	_, rest, _ := strings.Cut(string(b), "\nread_bytes: ")
	count, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(count)
	require.NoError(t, err)
	return n
}

// forget has the kernel drop the file from its page cache.
func forget(t *testing.T, file vfs.File) {
	t.Helper()
	f, ok := file.(interface{ Fd() uintptr })
	require.True(t, ok)
	const dontNeed = 4
	_, _, errno := syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, dontNeed, 0, 0)
	require.Zero(t, errno)
}

// TestLargeBatchIsNotRemembered: a large batch does not stay in the page cache. In a container, the cache's memory
// would be missing for the state.
func TestLargeBatchIsNotRemembered(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	dir := t.TempDir() // on a disk, where there is one
	require.NoError(t, Create(vfs.OS{}, dir))
	w := reopen(t, dir, Options{SegmentSize: 1 << 20})
	for i := range uint64(4) {
		require.NoError(t, w.StoreLog(&raft.Log{Index: i + 1, Data: make([]byte, 700<<10)}))
	}
	reads := func(name string) int {
		f, err := os.Open(name)
		require.NoError(t, err)
		defer f.Close()
		before := bytesRead(t)
		_, err = f.ReadAt(make([]byte, 512<<10), 0)
		require.NoError(t, err)
		return bytesRead(t) - before
	}
	first := reads(w.segments[len(w.segments)-1].file.Name())
	probe := filepath.Join(dir, "probe")
	f, err := os.OpenFile(probe, os.O_CREATE|os.O_WRONLY|syscall.O_DIRECT, 0o600)
	if err == nil {
		_, err = f.Write(make([]byte, 512<<10))
		require.NoError(t, f.Close())
	}
	if err != nil || reads(probe) == 0 {
		t.Skip("the folder for tests is on no disk, or its file system remembers all that is written")
	}
	require.NotZero(t, first)
	store(t, w, 5, 9)
	require.NoError(t, w.GetLog(9, new(raft.Log)))
}

// TestAppendReadsNothing: an append waits for no read, even if the block that it continues is not in the page cache.
func TestAppendReadsNothing(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	dir := t.TempDir() // on a disk, where there is one
	require.NoError(t, Create(vfs.OS{}, dir))
	w, err := Open(dir, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, w.Close()) }()
	store(t, w, 1, 1)
	tail := w.segments[len(w.segments)-1].file

	forget(t, tail)
	before := bytesRead(t)
	_, err = tail.ReadAt(make([]byte, 1), 0)
	require.NoError(t, err)
	if bytesRead(t) == before {
		t.Skip("the folder for tests is on no disk")
	}
	for i := uint64(2); i < 10; i++ {
		forget(t, tail)
		before = bytesRead(t)
		store(t, w, i, i)
		require.Equal(t, before, bytesRead(t))
	}
}
