// Package vfs is the store's interface to a file system, with the operating system's implementation.
//
// It promises what the operating system does: data is on the disk after a successful sync of the file, and a name after
// one of its folder. Package memdisk implements the same in memory, and loses all else in a power cut.
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
	// Mkdir creates a folder, for the owner only.
	Mkdir(name string) error
	Rename(from, to string) error
	Remove(name string) error
	RemoveAll(name string) error
	// Exists reports whether there is a file or folder of that name.
	Exists(name string) (bool, error)
	// Holds reports whether the open file f is still the file of that name: it was neither removed nor replaced.
	Holds(name string, f File) (bool, error)
	// List returns the names in a folder, in order.
	List(dir string) ([]string, error)
	// SyncDir makes all changes of names in dir durable.
	SyncDir(dir string) error
	// Space returns the free bytes and the size of the file system that has dir, or zeros if they are unknown.
	Space(dir string) (free, total uint64)
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// WriteDirect is WriteAt without the page cache, if the file system supports it. Requires: b and its range in the
	// file are aligned to 4 KiB.
	WriteDirect(b []byte, at int64) (int, error)
	// Name returns the name with which the file was opened.
	Name() string
	Size() (int64, error)
	// Sync makes the file durable, SyncData at least its content and size.
	Sync() error
	SyncData() error
}

// ReadFile returns the content of a file.
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

// Unfinished is the suffix of the name of a file that is being written.
const Unfinished = ".tmp"

// IsMissing reports whether err means that a file or its folder does not exist.
func IsMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// IsGone reports whether err means that a file does not exist, or that its folder is no longer one.
func IsGone(err error) bool {
	return IsMissing(err) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ESTALE)
}
