package vfs

import (
	"errors"
	"os"
	"path/filepath"
)

// Folder is a folder whose names change durably, one change after the other.
//
// A sync that fails drops all changes of names that no sync has written yet, other goroutines' too. Their own
// syncs would then succeed, and have written nothing.
type Folder struct {
	FS
	dir  string
	turn chan struct{} // has room for one; to wait for a mutex would stop virtual time
}

// NewFolder is for the folder dir, which one Folder may change at a time.
func NewFolder(fsys FS, dir string) *Folder {
	return &Folder{FS: fsys, dir: dir, turn: make(chan struct{}, 1)}
}

// Path is the path of a file in the folder.
func (f *Folder) Path(name string) string { return filepath.Join(f.dir, name) }

// Names returns the names in the folder, in order.
func (f *Folder) Names() ([]string, error) { return f.List(f.dir) }

// Change makes a change of names, and makes the change durable.
func (f *Folder) Change(change func() error) error {
	f.turn <- struct{}{}
	defer func() { <-f.turn }()
	if err := change(); err != nil {
		return err
	}
	return f.SyncDir(f.dir)
}

// Replace makes text the content of a file, durably, and as one step.
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
