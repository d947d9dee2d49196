//go:build !unix

package store

import (
	"errors"
	"os"
)

const lockName = "LOCK"

// lockDir fails, since two processes in one folder would destroy the data, and no lock is available that is released
// when a process dies.
func lockDir(string) (*os.File, error) {
	return nil, errors.New("lock data folder: not possible on this operating system")
}
