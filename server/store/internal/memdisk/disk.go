// Package memdisk is a file system in memory with what lies between a process and a disk: the page
// cache. Tests run the real code of the store on it.
//
// It promises what an operating system does, and no more:
//   - a process sees what was written by itself and by the processes before, synced or not;
//   - a process that is killed leaves what it wrote to the next process;
//   - a power cut takes away what was not synced: in a file any sectors, as each may have reached the
//     disk or not; in a folder each change of names since the folder's last sync;
//   - a sync that fails marks everything as clean. What was not synced may still be readable, a later
//     sync succeeds without writing it, and a power cut takes it.
//
// Not modelled: disks that lie about a sync, sectors that are written in part.
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

// ErrKilled is returned by operations of a process that was killed.
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
	// For HookAll alone.
	OpRead  Kind = "read" // of contents, sizes and names
	OpClose Kind = "close"
)

// Op is an operation on a file or folder.
type Op struct {
	Kind Kind
	Name string
}

// Disk outlives the processes that use it. The methods may be called at any time.
type Disk struct {
	mu     sync.Mutex // guards all below, and the tree
	rng    *rand.Rand
	root   *folder
	runs   *Process // nil while the power is off
	hook   func(Op) error
	all    bool // the hook is for reads and closings, too
	opened int  // files
	limit  int  // of opened; 0: none
}

// New returns an empty disk. The seed decides what a failed operation leaves.
func New(seed uint64) *Disk { return &Disk{rng: rand.New(rand.NewPCG(seed, 1)), root: newFolder()} }

// Boot begins another process, and kills the process before.
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

// Kill ends the process. What was written stays.
func (d *Disk) Kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
}

// PowerCut ends the process and takes away what was not synced, or some of it: the seed says
// what.
func (d *Disk) PowerCut(seed uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
	d.runs = nil
	rng := rand.New(rand.NewPCG(seed, 2))
	// Everything, nothing, or anything between.
	d.root.cut(rng, []float64{0, 0.5, 1, 0.1, 0.9}[seed%5])
}

// Running says whether there is a process.
func (d *Disk) Running() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.runs != nil && !d.runs.dead
}

// Hook calls h before each operation but reads and closings, without a lock held; nil ends that. An error
// makes the operation fail. A failed write may have written some blocks. A call that has not returned when
// the process ends has no effect any more, unless the call is a write.
func (d *Disk) Hook(h func(Op) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hook, d.all = h, false
}

// HookAll is Hook for reads and closings, too. A file whose closing fails is closed.
func (d *Disk) HookAll(h func(Op) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hook, d.all = h, true
}

// Limit is how many files may be open at a time. 0: any number.
func (d *Disk) Limit(files int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limit = files
}

// Opened counts the files that are open.
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
	// cut leaves what the disk has, and everything beyond with probability keep.
	cut(rng *rand.Rand, keep float64)
	clone(known map[node]node) node
}

// folder is names, as processes see them and as the disk has them.
type folder struct {
	names   map[string]node
	onDisk  map[string]node
	pending []change // in order, since the last sync
}

// change is a step: what becomes of some names; nil: removed.
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

// failSync writes some of what is pending, and forgets that there is more.
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

// missing is the error for a file that is not there.
func missing(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}
