package vfs

import (
	"errors"
	"os"
	"path/filepath"
)

// Folder is a folder whose names change durably, one change at a time.
//
// A failed sync drops all unsynced changes of names, including those of other goroutines, whose own syncs would then
// succeed without having written them.
type Folder struct {
	FS
	dir  string
	turn chan struct{} // a mutex, of capacity one; a wait for a sync.Mutex would stop virtual time
}

// NewFolder returns the Folder of dir, which must have only one.
func NewFolder(fsys FS, dir string) *Folder {
	return &Folder{FS: fsys, dir: dir, turn: make(chan struct{}, 1)}
}

// Path returns the path of a file in the folder.
func (f *Folder) Path(name string) string { return filepath.Join(f.dir, name) }

// Names returns the names in the folder, in order.
func (f *Folder) Names() ([]string, error) { return f.List(f.dir) }

// Change calls change, which changes names, and syncs the folder.
func (f *Folder) Change(change func() error) error {
	f.turn <- struct{}{}
	defer func() { <-f.turn }()
	if err := change(); err != nil {
		return err
	}
	return f.SyncDir(f.dir)
}

// Replace replaces the content of a file, atomically and durably.
func (f *Folder) Replace(name string, text []byte) error {
	tmp := f.Path(name + Unfinished)
	file, err := f.Open(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC)
	if err != nil {
		return err
	}
	if _, err = file.WriteAt(text, 0); err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	return f.Change(func() error { return f.Rename(tmp, f.Path(name)) })
}
