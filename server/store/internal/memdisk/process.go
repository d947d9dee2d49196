package memdisk

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// Process is a process's view of a disk.
type Process struct {
	disk *Disk
	dead bool // guarded by disk.mu
}

var _ vfs.FS = (*Process)(nil)

// Space implements vfs.FS. The memory has no bound.
func (p *Process) Space(string) (free, total uint64) { return 0, 0 }

// begin calls the hook, and returns with the disk's lock held. The error is the hook's, or ErrKilled. begun reports
// whether the operation may still have an effect on this disk.
func (p *Process) begin(kind Kind, name string) (begun bool, err error) {
	d := p.disk
	d.mu.Lock()
	if p.dead {
		return false, ErrKilled
	}
	if d.hook == nil || (kind == OpRead || kind == OpClose) && !d.all {
		return true, nil
	}
	hook := d.hook
	d.mu.Unlock()
	err = hook(Op{Kind: kind, Name: name})
	d.mu.Lock()
	if p.dead {
		return d.runs == p, ErrKilled
	}
	return true, err
}

// walk returns the folder at a path. Requires: the lock is held.
func (d *Disk) walk(dir string) *folder {
	at := d.root
	for part := range strings.SplitSeq(filepath.ToSlash(filepath.Clean(dir)), "/") {
		if part == "" || part == "." {
			continue
		}
		next, ok := at.names[part].(*folder)
		if !ok {
			return nil
		}
		at = next
	}
	return at
}

// place returns the parent folder of a path. Requires: the lock is held.
func (d *Disk) place(op, name string) (*folder, string, error) {
	dir := d.walk(filepath.Dir(name))
	if dir == nil {
		return nil, "", missing(op, name)
	}
	return dir, filepath.Base(name), nil
}

// Open implements vfs.FS.
func (p *Process) Open(name string, flag int) (vfs.File, error) {
	kind := OpOpen
	if flag&os.O_CREATE != 0 {
		kind = OpCreate
	}
	d := p.disk
	_, err := p.begin(kind, name)
	defer d.mu.Unlock()
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	if d.limit > 0 && d.opened >= d.limit {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EMFILE}
	}
	dir, base, err := d.place("open", name)
	if err != nil {
		return nil, err
	}
	f, ok := dir.names[base].(*file)
	switch {
	case flag&os.O_EXCL != 0 && dir.names[base] != nil:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
	case !ok && flag&os.O_CREATE == 0:
		return nil, missing("open", name)
	case !ok:
		f = newFile()
		dir.change(change{base: f})
	case flag&os.O_TRUNC != 0:
		f.truncate()
	}
	d.opened++
	return &handle{process: p, name: name, file: f}, nil
}

// Mkdir implements vfs.FS.
func (p *Process) Mkdir(name string) error {
	_, err := p.begin(OpMkdir, name)
	defer p.disk.mu.Unlock()
	if err != nil {
		return err
	}
	dir, base, err := p.disk.place("mkdir", name)
	if err != nil {
		return err
	}
	if dir.names[base] != nil {
		return &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrExist}
	}
	dir.change(change{base: newFolder()})
	return nil
}

// Rename implements vfs.FS, within a folder.
func (p *Process) Rename(from, to string) error {
	_, err := p.begin(OpRename, to)
	defer p.disk.mu.Unlock()
	if err != nil {
		return err
	}
	dir, base, err := p.disk.place("rename", from)
	if err != nil {
		return err
	}
	n := dir.names[base]
	if n == nil {
		return missing("rename", from)
	}
	if filepath.Dir(from) != filepath.Dir(to) {
		return errors.ErrUnsupported
	}
	dir.change(change{base: nil, filepath.Base(to): n})
	return nil
}

// Remove implements vfs.FS.
func (p *Process) Remove(name string) error {
	_, err := p.begin(OpRemove, name)
	defer p.disk.mu.Unlock()
	if err != nil {
		return err
	}
	dir, base, err := p.disk.place("remove", name)
	if err != nil {
		return err
	}
	switch n := dir.names[base].(type) {
	case nil:
		return missing("remove", name)
	case *folder:
		if len(n.names) > 0 {
			return &fs.PathError{Op: "remove", Path: name, Err: syscall.ENOTEMPTY}
		}
	}
	dir.change(change{base: nil})
	return nil
}

// RemoveAll implements vfs.FS.
func (p *Process) RemoveAll(name string) error {
	names, err := p.List(name)
	if err != nil && !vfs.IsMissing(err) {
		return err
	}
	for _, child := range names {
		if err := p.RemoveAll(filepath.Join(name, child)); err != nil {
			return err
		}
	}
	if err := p.Remove(name); !vfs.IsMissing(err) {
		return err
	}
	return nil
}

// Exists implements vfs.FS.
func (p *Process) Exists(name string) (bool, error) {
	_, err := p.begin(OpRead, name)
	defer p.disk.mu.Unlock()
	if err != nil {
		return false, err
	}
	if p.disk.walk(name) != nil {
		return true, nil
	}
	dir, base, err := p.disk.place("stat", name)
	return err == nil && dir.names[base] != nil, nil
}

// Holds implements vfs.FS.
func (p *Process) Holds(name string, f vfs.File) (bool, error) {
	_, err := p.begin(OpRead, name)
	defer p.disk.mu.Unlock()
	if err != nil {
		return false, err
	}
	dir, base, err := p.disk.place("stat", name)
	return err == nil && dir.names[base] == f.(*handle).file, nil
}

// List implements vfs.FS.
func (p *Process) List(name string) ([]string, error) {
	_, err := p.begin(OpRead, name)
	defer p.disk.mu.Unlock()
	if err != nil {
		return nil, err
	}
	dir := p.disk.walk(name)
	if dir == nil {
		return nil, missing("open", name)
	}
	return slices.Sorted(maps.Keys(dir.names)), nil
}

// SyncDir implements vfs.FS.
func (p *Process) SyncDir(name string) error {
	begun, err := p.begin(OpSyncDir, name)
	d := p.disk
	defer d.mu.Unlock()
	dir := d.walk(name)
	switch {
	case err == nil && d.limit > 0 && d.opened >= d.limit:
		return &fs.PathError{Op: "open", Path: name, Err: syscall.EMFILE}
	case err == nil && dir == nil:
		return missing("open", name)
	case err == nil:
		dir.sync()
	case begun && dir != nil && !p.dead:
		dir.failSync(d.rng)
	}
	return err
}

// handle is an open file.
type handle struct {
	process *Process
	name    string
	file    *file
	closed  bool
}

func (h *handle) Name() string { return h.name }

func (h *handle) Close() error {
	_, err := h.process.begin(OpClose, h.name)
	d := h.process.disk
	defer d.mu.Unlock()
	if h.closed {
		return fs.ErrClosed
	}
	h.closed = true
	if h.process.dead {
		return nil
	}
	d.opened--
	return err
}

// usable returns an error if the file is closed or the process was killed. Requires: the lock is held.
func (h *handle) usable() error {
	switch {
	case h.process.dead:
		return ErrKilled
	case h.closed:
		return fs.ErrClosed
	default:
		return nil
	}
}

func (h *handle) Size() (int64, error) {
	_, err := h.process.begin(OpRead, h.name)
	defer h.process.disk.mu.Unlock()
	if err == nil {
		err = h.usable()
	}
	return int64(len(h.file.data)), err
}

func (h *handle) ReadAt(b []byte, at int64) (int, error) {
	_, err := h.process.begin(OpRead, h.name)
	defer h.process.disk.mu.Unlock()
	if err == nil {
		err = h.usable()
	}
	if err != nil {
		return 0, err
	}
	if at >= int64(len(h.file.data)) {
		return 0, io.EOF
	}
	n := copy(b, h.file.data[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt writes b. A call that fails or whose process is killed may have written some blocks.
func (h *handle) WriteAt(b []byte, at int64) (int, error) {
	begun, err := h.process.begin(OpWrite, h.name)
	d := h.process.disk
	defer d.mu.Unlock()
	if err == nil {
		err = h.usable()
		begun = err == nil
	}
	n := len(b)
	if err != nil {
		blocks := (len(b) + blockSize - 1) / blockSize
		n = min(len(b), d.rng.IntN(blocks+1)*blockSize)
	}
	if begun {
		h.file.write(b[:n], at)
	}
	return n, err
}

func (h *handle) WriteDirect(b []byte, at int64) (int, error) { return h.WriteAt(b, at) }

func (h *handle) Sync() error {
	begun, err := h.process.begin(OpSync, h.name)
	d := h.process.disk
	defer d.mu.Unlock()
	if err == nil {
		err = h.usable()
		begun = err == nil
	}
	switch {
	case err == nil:
		h.file.sync()
	case begun && !h.process.dead:
		h.file.failSync(d.rng)
	}
	return err
}

func (h *handle) SyncData() error { return h.Sync() }
