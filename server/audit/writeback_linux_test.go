package audit

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// An audit log of a gigabyte must not fill the memory limit of a container, which includes the page cache.
func TestOldLinesLeaveThePageCache(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	var disk unix.Statfs_t
	require.NoError(t, unix.Statfs(filepath.Dir(path), &disk))
	if disk.Type == unix.TMPFS_MAGIC || disk.Type == unix.RAMFS_MAGIC {
		t.Skip("needs a temporary folder on a disk: the files of a tmpfs are the page cache")
	}
	out, _, err := openFiles(path, 1<<30, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	f := out.(*files)
	defer f.close()
	lines := append(bytes.Repeat([]byte{'x'}, writeBackBytes-1), '\n')
	for f.size < 4*cachedBytes {
		require.NoError(t, f.write(lines))
	}
	if residentBytes(t, f.f) == 0 {
		t.Skip("needs a temporary folder on a file system that uses the page cache")
	}
	require.NoError(t, f.f.Sync()) // a line that is not on the disk stays
	require.NoError(t, f.write(lines))
	resident := residentBytes(t, f.f)
	require.LessOrEqual(t, resident, 2*cachedBytes)
	require.Greater(t, resident, cachedBytes/2, "programs that follow the file read the last lines")
}

// residentBytes returns how much of a file is in the page cache.
func residentBytes(t *testing.T, f *os.File) int {
	info, err := f.Stat()
	require.NoError(t, err)
	mapped, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	defer unix.Munmap(mapped)
	pages := make([]byte, (len(mapped)+os.Getpagesize()-1)/os.Getpagesize())
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mapped[0])), uintptr(len(mapped)),
		uintptr(unsafe.Pointer(&pages[0])))
	require.Zero(t, errno)
	resident := 0
	for _, p := range pages {
		resident += int(p & 1)
	}
	return resident * os.Getpagesize()
}
