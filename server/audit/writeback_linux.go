package audit

import (
	"os"

	"golang.org/x/sys/unix"
)

// writeBack makes the kernel write n bytes of a file from an offset to the disk, and does not wait for the disk. The
// kernel would gather the lines of half a minute, and the syncs of the Raft log would wait behind all of them.
func writeBack(f *os.File, from, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), from, n, unix.SYNC_FILE_RANGE_WRITE)
}
