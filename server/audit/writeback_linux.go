package audit

import (
	"os"

	"golang.org/x/sys/unix"
)

// writeBack makes the kernel write n bytes of a file from an offset to the disk, and does not wait for the disk. The
// kernel would gather the lines of half a minute, and the syncs of the Raft log would wait behind all of them. Lines
// that are on the disk already leave the page cache, except for the last cachedBytes, so that the next lines are copied
// to the same memory: memory that nobody has used for long costs more than everything else in this package.
func writeBack(f *os.File, from, n int64) {
	fd := int(f.Fd())
	_ = unix.SyncFileRange(fd, from, n, unix.SYNC_FILE_RANGE_WRITE)
	if old := from - cachedBytes; old > 0 {
		_ = unix.Fadvise(fd, 0, old, unix.FADV_DONTNEED)
	}
}

// cachedBytes is what stays in the page cache of the current file, for programs that follow it.
const cachedBytes = 4 << 20
