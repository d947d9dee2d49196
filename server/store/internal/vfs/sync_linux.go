package vfs

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// syncData makes written data durable. A segment never changes size, so its metadata need not be written: fdatasync
// spares the file system a journal commit.
func syncData(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

// space returns the bytes that a process without privileges may still use, and the size of dir's file system.
func space(dir string) (free, total uint64) {
	var stat unix.Statfs_t
	if unix.Statfs(dir, &stat) != nil {
		return 0, 0
	}
	return stat.Bavail * uint64(stat.Bsize), stat.Blocks * uint64(stat.Bsize)
}

// writeDirect writes by direct I/O, or through the page cache if the file system does not support it.
func writeDirect(f *os.File, b []byte, at int64) (int, error) {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags|unix.O_DIRECT)
	}
	if err != nil {
		return f.WriteAt(b, at)
	}
	n, err := f.WriteAt(b, at)
	if _, reset := unix.FcntlInt(f.Fd(), unix.F_SETFL, flags); reset != nil {
		return n, errors.Join(err, reset) // with direct I/O still on, small writes would fail
	}
	if errors.Is(err, unix.EINVAL) { // the file system's blocks are larger
		return f.WriteAt(b, at)
	}
	return n, err
}
