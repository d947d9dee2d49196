//go:build unix

package audit

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// openFlags of a file: a symbolic link is an error, and a named pipe does not block.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// lockFile refuses a file that another process writes, until f is closed. File systems without such locks are fine.
func lockFile(f *os.File) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("another process writes %s", f.Name())
	}
	return nil
}
