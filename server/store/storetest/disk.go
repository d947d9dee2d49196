// Package storetest has a node's disk in memory, for tests in virtual time. The disk outlives the processes that use
// it: a test can open, crash and open it again.
//
// The store is the real one, with log, snapshots, identity and folder, on a file system with a page cache (package
// memdisk): acknowledged writes survive a crash and a power cut; others may survive a crash, and may be lost with the
// power. Terms and votes are in a file of another format, as bbolt needs a real file.
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

// ErrCrashed is the error of calls on a store whose process has crashed.
var ErrCrashed = memdisk.ErrKilled

const (
	dataDir = "data"
	// segmentSize is small, for as many rotations as in hours of a real cluster.
	segmentSize = 16 << 10
)

// Disk is the disk of a node. It must be created in the synctest bubble that uses it.
type Disk struct {
	mu      sync.Mutex    // guards all below
	files   *memdisk.Disk // for the next process
	process *memdisk.Process
	left    *memdisk.Disk // the copy that a process uses after Leave, or nil
	store   *store.Store
	held    chan struct{} // closed when syncs of the log may continue; nil if none is held
	failing int           // 1 if the next sync of the log fails, 2 if the one after it does, and so on; 0 for none
	draws   uint32        // the number of random numbers drawn; a copy of the disk draws others
}

// NewDisk returns an empty disk.
func NewDisk() *Disk {
	d := &Disk{files: memdisk.New(1)}
	d.files.Hook(d.meet)
	return d
}

// Open opens a store on this disk. It uses only c.Hooks, c.Name and c.Mends. It crashes the process of a Store that was
// opened earlier.
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

// turns serializes changes of a log by a channel. A wait for the log's own mutex would stop virtual time, for example
// of a snapshot that deletes entries while an append is held.
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

// openOn opens the folder for a process on a disk.
func openOn(p *memdisk.Process, c store.Config, random uint32) (*store.Store, error) {
	c.DataDir = dataDir
	if c.Name == "" {
		c.Name = "node"
	}
	on := device(p)
	on.Random = func() uint32 { return random }
	return store.OpenOn(on, c)
}

// device returns a process's disk as a store's device.
func device(p *memdisk.Process) store.Device {
	return store.Device{
		FS:           p,
		Lock:         func(string) (io.Closer, error) { return io.NopCloser(nil), nil },
		CreateStable: func(path string) error { return createStable(p, path) },
		OpenStable:   func(path string) (store.StableStore, error) { return openStable(p, path) },
		SegmentSize:  segmentSize,
	}
}

// Copy returns a disk with a copy of the folder. Requires: no process runs on d.
func (d *Disk) Copy() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &Disk{files: d.files.Clone(3), draws: d.draws + 1<<16}
	c.files.Hook(c.meet)
	return c
}

// RotSnapshots changes a bit of each snapshot, with or without a running process.
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
	return errors.Join(err, f.Sync(), f.Close())
}

// Crash kills the process: all calls on the Store fail from now on, including those that a fault holds. All writes
// survive, synced or not.
func (d *Disk) Crash() { d.end((*memdisk.Disk).Kill) }

// PowerCut is Crash, and loses unsynced writes, or some of them, depending on the seed.
func (d *Disk) PowerCut(seed uint64) {
	d.end(func(files *memdisk.Disk) { files.PowerCut(seed) })
}

// Leave begins a crash that the process does not notice, as raft panics if a write fails: the process continues on a
// copy of the disk, which is dropped with it. Requires: Crash or PowerCut follows.
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
		_ = s.Close() // ends the store's goroutine; nothing is written
	}
}

// FailSync makes a sync of the log fail with EIO: the next one, or one that many syncs later. The unsynced data can be
// read until the next power cut, and is on the disk in part, or not at all.
func (d *Disk) FailSync(later int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failing = later + 1
}

// HoldSyncs makes the log's syncs wait until ReleaseSyncs, Crash or PowerCut, so that the process can be crashed
// between a write and the sync.
func (d *Disk) HoldSyncs() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held == nil {
		d.held = make(chan struct{})
	}
}

// ReleaseSyncs ends HoldSyncs.
func (d *Disk) ReleaseSyncs() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held != nil {
		close(d.held)
		d.held = nil
	}
}

// meet is the hook that holds and fails syncs of the log. It spares terms and votes, as raft panics over them.
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
