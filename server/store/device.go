package store

import (
	"io"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// Device is what a folder lies on: the operating system, or the memory of a test (package storetest).
type Device struct {
	FS vfs.FS
	// Lock keeps others out of a folder until it is closed.
	Lock func(dir string) (io.Closer, error)
	// CreateStable makes a store of terms and votes, OpenStable opens the store: it is on no FS,
	// as bbolt needs a real file.
	CreateStable func(path string) error
	OpenStable   func(path string) (StableStore, error)
	// SegmentSize is of the log, in bytes. 0: wal.DefaultSegmentSize.
	SegmentSize int64
	// Random is for incarnations. nil: crypto/rand.
	Random func() uint32
}

// StableStore is a raft.StableStore of a [Device].
type StableStore interface {
	raft.StableStore
	io.Closer
}

// system is the operating system's device.
func system() Device { return deviceOn(vfs.OS{}) }

// deviceOn is a device of the operating system's files.
func deviceOn(fs vfs.FS) Device {
	return Device{
		FS:           fs,
		Lock:         func(dir string) (io.Closer, error) { return lockDir(dir) },
		CreateStable: func(path string) error { return createBolt(fs, path) },
		OpenStable:   func(path string) (StableStore, error) { return openStable(fs, path) },
	}
}
