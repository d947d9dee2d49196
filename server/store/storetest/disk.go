// Package storetest is a node's disk in memory, for tests in virtual time. The disk
// outlives the processes that use it: a test can open, crash and open it again.
//
// The store is real, with log, snapshots, identity and folder, over a file system with a page cache
// (package memdisk): what was acknowledged is there after a crash and after a power cut; what was not
// may be there after a crash, and may vanish with the power. Terms and votes lie in a file of another
// form, as bbolt needs a real file.
//
// Start reading at [Disk].
package storetest

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/store"
	"github.com/holdfast/holdfast/server/store/internal/memdisk"
)

// ErrCrashed is returned by calls on a store whose process crashes.
var ErrCrashed = memdisk.ErrKilled

const (
	// dataDir is where the folder is.
	dataDir = "data"
	// segmentSize is small: rotations are as frequent as in a real cluster that runs for hours.
	segmentSize = 16 << 10
)

// Disk is the disk of a node. A Disk for a synctest bubble is made inside.
type Disk struct {
	mu      sync.Mutex    // guards all below
	files   *memdisk.Disk // what the next process finds
	process *memdisk.Process
	left    *memdisk.Disk // what a process that Leave has parted from files goes on with, or nil
	store   *store.Store
	held    chan struct{} // closed when syncs of the log need not wait any more; nil: no sync waits
	failing int           // the how many-th sync of the log, from now, fails; 0: none
	draws   uint32        // of random numbers; those of a copy are others
}

// NewDisk returns an empty disk.
func NewDisk() *Disk {
	d := &Disk{files: memdisk.New(1)}
	d.files.Hook(d.meet)
	return d
}

// Open is like store.Open on this disk. Only c.Hooks, c.Name and c.Mends matter. A Store that
// was opened earlier is cut off as by Crash.
func (d *Disk) Open(c store.Config) (*store.Store, error) {
	d.Crash()
	d.mu.Lock()
	p := d.files.Boot()
	d.draws++
	random := d.draws * 2654435761 // Knuth's multiplicative hash
	d.mu.Unlock()
	s, err := openOn(p, c, random)
	if err != nil {
		return nil, err
	}
	s.Log = &turns{LogStore: s.Log, turn: make(chan struct{}, 1)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.store, d.process = s, p
	return s, nil
}

// turns is a log whose changes take turns. The log below has a mutex for that, and to wait
// for a mutex stops virtual time: a snapshot would, that deletes entries while an append is held up.
type turns struct {
	raft.LogStore
	turn chan struct{}
}

func (l *turns) IsMonotonic() bool { return l.LogStore.(raft.MonotonicLogStore).IsMonotonic() }

func (l *turns) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

func (l *turns) StoreLogs(logs []*raft.Log) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	return l.LogStore.StoreLogs(logs)
}

func (l *turns) DeleteRange(lo, hi uint64) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	return l.LogStore.DeleteRange(lo, hi)
}

// openOn opens the folder as a process on a disk finds it.
func openOn(p *memdisk.Process, c store.Config, random uint32) (*store.Store, error) {
	c.DataDir = dataDir
	if c.Name == "" {
		c.Name = "node"
	}
	on := device(p)
	on.Random = func() uint32 { return random }
	return store.OpenOn(on, c)
}

// device is the disk as a process finds it.
func device(p *memdisk.Process) store.Device {
	return store.Device{
		FS:           p,
		Lock:         func(string) (io.Closer, error) { return io.NopCloser(nil), nil },
		CreateStable: func(path string) error { return createStable(p, path) },
		OpenStable:   func(path string) (store.StableStore, error) { return openStable(p, path) },
		SegmentSize:  segmentSize,
	}
}

// Copy returns a disk with the same files, as a copy of the folder has them. No process may run on d.
func (d *Disk) Copy() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &Disk{files: d.files.Clone(3), draws: d.draws + 1<<16}
	c.files.Hook(c.meet)
	return c
}

// RotSnapshots changes a bit of each snapshot, also under the process that runs.
func (d *Disk) RotSnapshots() error {
	d.mu.Lock()
	p := d.process
	if d.store == nil {
		p = d.files.Boot()
	}
	d.mu.Unlock()
	return rotSnapshots(p)
}

func rotSnapshots(p *memdisk.Process) error {
	folder := filepath.Join(dataDir, "snapshots")
	names, err := p.List(folder)
	if err != nil || len(names) == 0 {
		return errors.Join(err, errors.New("rot snapshots: there are none"))
	}
	for _, name := range names {
		if err := rot(p, filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	return nil
}

// rot changes a bit in the middle of a file.
func rot(p *memdisk.Process, path string) error {
	f, err := p.Open(path, os.O_RDWR)
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err != nil {
		return err
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, size/2); err != nil {
		return err
	}
	b[0] ^= 4
	_, err = f.WriteAt(b, size/2)
	return errors.Join(err, f.Sync(), f.Close()) // it is the disk that changes
}

// Crash is the death of the process: calls on the Store fail from here on, also
// calls that a fault holds up. What was written stays, synced or not.
func (d *Disk) Crash() { d.end((*memdisk.Disk).Kill) }

// PowerCut is Crash, and takes away what was not synced, or some of that: the seed says what.
func (d *Disk) PowerCut(seed uint64) {
	d.end(func(files *memdisk.Disk) { files.PowerCut(seed) })
}

// Leave is the beginning of a crash for a process that must not notice the crash, as raft panics
// when a write fails: the process goes on with a copy of the disk, and the copy ends with the
// process. Crash or PowerCut have to follow.
func (d *Disk) Leave() {
	d.mu.Lock()
	if d.left == nil {
		d.left = d.files
		d.files = d.left.Clone(2)
		d.left.Hook(nil)
		d.files.Hook(d.meet)
	}
	d.failing = 0
	d.mu.Unlock()
	d.ReleaseSyncs()
}

func (d *Disk) end(how func(*memdisk.Disk)) {
	d.mu.Lock()
	how(d.files)
	if d.left != nil {
		d.left.Kill()
		d.left = nil
	}
	s := d.store
	d.store, d.failing = nil, 0
	d.mu.Unlock()
	d.ReleaseSyncs()
	if s != nil {
		_ = s.Close() // the store's goroutine ends; nothing can be written any more
	}
}

// FailSync makes a sync of the log fail with EIO: the next, or a later one. What
// was to be written can be read until the next power cut, and is on the disk in part, or not at all.
func (d *Disk) FailSync(later int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failing = later + 1
}

// HoldSyncs makes the log's syncs wait, so that the process can be crashed between a
// write and the sync. ReleaseSyncs, Crash and PowerCut end that.
func (d *Disk) HoldSyncs() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held == nil {
		d.held = make(chan struct{})
	}
}

// ReleaseSyncs lets syncs go on.
func (d *Disk) ReleaseSyncs() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held != nil {
		close(d.held)
		d.held = nil
	}
}

// meet is what an operation meets with. Terms and votes are spared: raft panics over them.
func (d *Disk) meet(op memdisk.Op) error {
	if op.Kind != memdisk.OpSync || !strings.HasPrefix(op.Name, filepath.Join(dataDir, "wal")+"/") {
		return nil
	}
	d.mu.Lock()
	held, fails := d.held, d.failing == 1
	if d.failing > 0 {
		d.failing--
	}
	d.mu.Unlock()
	if held != nil {
		<-held
	}
	if fails {
		return syscall.EIO
	}
	return nil
}
