// Package memdisk is a file system in memory with a page cache. Tests run the real code of the store on it.
//
// It promises what an operating system does, and no more:
//   - a process reads all earlier writes, its own and those of earlier processes, synced or not;
//   - all writes of a killed process survive;
//   - a power cut loses any unsynced sectors of a file, and any of a folder's changes of names since its last
//     sync;
//   - a failed sync marks everything as clean. The unsynced data may still be readable, a later sync succeeds without
//     writing it, and a power cut loses it.
//
// It does not model disks that lie about a sync, nor partly written sectors.
//
// Start reading at [Disk], then process.go for the operations.
package memdisk

import (
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
)

// ErrKilled is the error of operations of a killed process.
var ErrKilled = errors.New("this process has crashed")

// Kind is a kind of operation.
type Kind string

// The kinds.
const (
	OpOpen    Kind = "open"   // of an existing file
	OpCreate  Kind = "create" // or truncate
	OpWrite   Kind = "write"
	OpSync    Kind = "sync"
	OpSyncDir Kind = "sync folder"
	OpRename  Kind = "rename"
	OpRemove  Kind = "remove"
	OpMkdir   Kind = "make folder"
	// These are for HookAll only.
	OpRead  Kind = "read" // of contents, sizes and names
	OpClose Kind = "close"
)

// Op is an operation on a file or folder.
type Op struct {
	Kind Kind
	Name string
}

// Disk is a disk, which outlives the processes that use it. Its methods may be called at any time.
type Disk struct {
	mu     sync.Mutex // guards all below, and the tree
	rng    *rand.Rand
	root   *folder
	runs   *Process // the running process, or nil
	hook   func(Op) error
	all    bool // the hook is also called for reads and closings
	opened int  // the number of open files
	limit  int  // of open files, 0 for none
}

// New returns an empty disk. The seed determines the effects of failed operations.
func New(seed uint64) *Disk { return &Disk{rng: rand.New(rand.NewPCG(seed, 1)), root: newFolder()} }

// Boot starts a process, and kills the one before.
func (d *Disk) Boot() *Process {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
	d.runs = &Process{disk: d}
	return d.runs
}

func (d *Disk) end() {
	if d.runs != nil {
		d.runs.dead = true
	}
	d.opened = 0
}

// Kill ends the process. All writes survive.
func (d *Disk) Kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
}

// PowerCut ends the process, and loses unsynced writes, or some of them, depending on the seed.
func (d *Disk) PowerCut(seed uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
	d.runs = nil
	rng := rand.New(rand.NewPCG(seed, 2))
	// Everything, nothing, or anything between.
	d.root.cut(rng, []float64{0, 0.5, 1, 0.1, 0.9}[seed%5])
}

// Running reports whether there is a process.
func (d *Disk) Running() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.runs != nil && !d.runs.dead
}

// Hook registers h, which is called before each operation except reads and closings, without a lock held; nil removes
// it. An error makes the operation fail. A failed write may have written some blocks. An operation whose hook returns
// after the end of the process has no effect, unless it is a write.
func (d *Disk) Hook(h func(Op) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hook, d.all = h, false
}

// HookAll is Hook including reads and closings. A file is closed even if closing fails.
func (d *Disk) HookAll(h func(Op) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hook, d.all = h, true
}

// Limit bounds the number of open files; 0 for no limit.
func (d *Disk) Limit(files int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limit = files
}

// Opened returns the number of open files.
func (d *Disk) Opened() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.opened
}

// Clone returns a disk in the same state, without a process, a hook or a limit.
func (d *Disk) Clone(seed uint64) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := New(seed)
	c.root = d.root.clone(make(map[node]node)).(*folder)
	return c
}

// node is a file or a folder.
type node interface {
	// cut drops each unsynced write, except with probability keep.
	cut(rng *rand.Rand, keep float64)
	clone(known map[node]node) node
}

// folder is a folder, with its names in the page cache and on the disk.
type folder struct {
	names   map[string]node
	onDisk  map[string]node
	pending []change // the changes since the last sync, in order
}

// change is an atomic change of names: the new node of each, nil for a removed one.
type change map[string]node

func newFolder() *folder {
	return &folder{names: make(map[string]node), onDisk: make(map[string]node)}
}

func (c change) apply(names map[string]node) {
	for name, n := range c {
		if n == nil {
			delete(names, name)
		} else {
			names[name] = n
		}
	}
}

func (f *folder) change(c change) {
	c.apply(f.names)
	f.pending = append(f.pending, c)
}

func (f *folder) sync() {
	for _, c := range f.pending {
		c.apply(f.onDisk)
	}
	f.pending = nil
}

// failSync writes some pending changes, and marks all as written.
func (f *folder) failSync(rng *rand.Rand) { f.write(rng, rng.Float64()) }

func (f *folder) write(rng *rand.Rand, keep float64) {
	for _, c := range f.pending {
		if rng.Float64() < keep {
			c.apply(f.onDisk)
		}
	}
	f.pending = nil
}

func (f *folder) cut(rng *rand.Rand, keep float64) {
	f.write(rng, keep)
	f.names = maps.Clone(f.onDisk)
	for _, name := range slices.Sorted(maps.Keys(f.names)) {
		f.names[name].cut(rng, keep)
	}
}

func (f *folder) clone(known map[node]node) node {
	if c, ok := known[f]; ok {
		return c
	}
	c := newFolder()
	known[f] = c
	for name, n := range f.names {
		c.names[name] = n.clone(known)
	}
	for name, n := range f.onDisk {
		c.onDisk[name] = n.clone(known)
	}
	for _, p := range f.pending {
		copied := make(change)
		for name, n := range p {
			if n != nil {
				n = n.clone(known)
			}
			copied[name] = n
		}
		c.pending = append(c.pending, copied)
	}
	return c
}

// missing returns the error of a file that does not exist.
func missing(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}
