package vfs

import (
	"os"
	"syscall"
)

// syncData makes what was written durable. A segment never changes size, so
// the metadata can stay behind: fdatasync spares the file system a journal commit.
func syncData(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
