//go:build !unix

package store

import (
	"errors"
	"os"
)

const lockName = "LOCK"

// lockDir: two processes in one folder would destroy the data; without a lock that is
// given back when a process dies, there is no safe way to open a folder.
func lockDir(string) (*os.File, error) {
	return nil, errors.New("lock data folder: not possible on this operating system")
}
