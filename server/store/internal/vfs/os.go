package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// OS is the operating system's file system.
type OS struct{}

var _ FS = OS{}

// osFile is a File of the operating system.
type osFile struct{ *os.File }

func (OS) Open(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (OS) Mkdir(name string) error      { return os.Mkdir(name, 0o700) }
func (OS) Rename(from, to string) error { return os.Rename(from, to) }
func (OS) Remove(name string) error     { return os.Remove(name) }
func (OS) RemoveAll(name string) error  { return os.RemoveAll(name) }

func (OS) Exists(name string) (bool, error) {
	_, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (OS) Holds(name string, f File) (bool, error) {
	own, err := f.(osFile).Stat()
	if err != nil {
		return false, err
	}
	return Named(name, own)
}

// Named reports whether a file still has a name on the machine's disk.
func Named(name string, file os.FileInfo) (bool, error) {
	named, err := os.Stat(name)
	if IsGone(err) {
		return false, nil
	}
	return err == nil && os.SameFile(named, file), err
}

func (OS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

func (OS) SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open folder: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return nil
}

func (OS) Space(dir string) (free, total uint64) { return space(dir) }

func (f osFile) Size() (int64, error) {
	stat, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return stat.Size(), nil
}

func (f osFile) SyncData() error { return syncData(f.File) }

func (f osFile) WriteDirect(b []byte, at int64) (int, error) { return writeDirect(f.File, b, at) }
