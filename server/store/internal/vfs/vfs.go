// Package vfs is what the store does with files: an interface, and the operating system behind it.
//
// The promises are the operating system's: what is written is on the disk after a sync
// that succeeded, a name after the folder was synced. Package memdisk is the same in memory, and
// forgets all else in a power cut.
//
// Start reading at [FS].
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// FS is a file system.
type FS interface {
	// Open opens a file as os.OpenFile does. New files are for the owner only.
	Open(name string, flag int) (File, error)
	// Mkdir makes a folder, for the owner only.
	Mkdir(name string) error
	Rename(from, to string) error
	Remove(name string) error
	RemoveAll(name string) error
	// Exists is about any kind of file.
	Exists(name string) (bool, error)
	// Holds reports whether f, which is open, is the file of that name: it was neither removed nor replaced.
	Holds(name string, f File) (bool, error)
	// List returns the names in a folder, in order.
	List(dir string) ([]string, error)
	// SyncDir makes the names in dir durable: what was made, renamed and removed there.
	SyncDir(dir string) error
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// WriteDirect is WriteAt that keeps b out of the system's memory of files, if the file system can: b, and the place in
	// the file, begin and end at blocks of 4 KiB.
	WriteDirect(b []byte, at int64) (int, error)
	// Name is what the file was opened with.
	Name() string
	Size() (int64, error)
	// Sync makes all of the file durable, SyncData at least the content and the size.
	Sync() error
	SyncData() error
}

// ReadFile reads a file whole.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b, nil
}

// Unfinished ends the name of a file that is being written.
const Unfinished = ".tmp"

// IsMissing says that a file or the file's folder is not there.
func IsMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// IsGone reports whether err says that there is no such file, or that its folder is none any more.
func IsGone(err error) bool {
	return IsMissing(err) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ESTALE)
}
