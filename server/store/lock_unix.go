//go:build unix

package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const lockName = "LOCK"

// lockDir locks dir against other processes until the file is closed, or the process dies. The file has the process ID,
// for humans.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		owner := make([]byte, 20)
		n, _ := f.Read(owner)
		_ = f.Close()
		return nil, fmt.Errorf("data folder %s is in use by another process (pid %s)", dir,
			strings.TrimSpace(string(owner[:n])))
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock data folder %s: %w", dir, err)
	}
	return f, nil
}
