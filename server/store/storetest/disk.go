// Package storetest is a node's disk in memory, for tests in virtual time. It
// outlives the processes that use it: open it, crash it, open it again.
//
// It promises what a disk promises: what was acknowledged is there after a
// crash, and a call that was still waiting when the crash came has no effect. It
// goes through the same watchdog, hooks and faults as the real store, and its log
// is as strict as the one on a real disk: no gaps.
//
// Start reading at [Disk].
package storetest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/store"
)

// ErrCrashed is returned by calls on a store whose process has crashed.
var ErrCrashed = errors.New("this process has crashed")

// Disk is one node's disk. In a synctest bubble, make it inside.
type Disk struct {
	mu        sync.Mutex // guards all below
	life      uint64     // number of the Open in force; also the epoch
	crashed   bool
	log       []raft.Log // in order of index
	stable    map[string]string
	snapshots []*snapshot // oldest first
	created   int         // snapshots ever begun, for their names
}

// NewDisk returns an empty disk.
func NewDisk() *Disk { return &Disk{stable: make(map[string]string)} }

// Open is like store.Open on this disk. Only c.Hooks matters. A Store that
// was opened earlier is cut off as by Crash.
func (d *Disk) Open(c store.Config) (*store.Store, error) {
	d.mu.Lock()
	d.life++
	d.crashed = false
	h := handle{disk: d, life: d.life}
	d.mu.Unlock()
	return store.New(store.Parts{
		Log:       &diskLog{h},
		Stable:    &diskStable{h},
		Snapshots: &diskSnapshots{h},
		Epoch:     h.life,
		Close:     h.close,
	}, c.Hooks)
}

// Crash is the death of the process: calls on its Store fail from here on, also
// those that an injected fault holds up. What was acknowledged stays.
func (d *Disk) Crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crashed = true
}

// LoseTail removes the newest log entries although they were acknowledged: a
// disk that lies about what it has written. Tests of the tests use it.
func (d *Disk) LoseTail(entries int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = d.log[:max(0, len(d.log)-entries)]
}

// Entries counts the log's entries.
func (d *Disk) Entries() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.log)
}

// handle is one life's access to the disk.
type handle struct {
	disk *Disk
	life uint64
}

// lock returns with the disk's mutex held, or an error if this life is over.
func (h handle) lock() error {
	h.disk.mu.Lock()
	if h.disk.crashed || h.disk.life != h.life {
		h.disk.mu.Unlock()
		return ErrCrashed
	}
	return nil
}

func (h handle) close() error {
	if h.lock() == nil {
		h.disk.crashed = true
		h.disk.mu.Unlock()
	}
	return nil
}

// diskLog is a raft.LogStore.
type diskLog struct{ handle }

func (l *diskLog) IsMonotonic() bool { return true }

func (l *diskLog) FirstIndex() (uint64, error) {
	if err := l.lock(); err != nil {
		return 0, err
	}
	defer l.disk.mu.Unlock()
	if len(l.disk.log) == 0 {
		return 0, nil
	}
	return l.disk.log[0].Index, nil
}

func (l *diskLog) LastIndex() (uint64, error) {
	if err := l.lock(); err != nil {
		return 0, err
	}
	defer l.disk.mu.Unlock()
	return l.disk.last(), nil
}

func (d *Disk) last() uint64 {
	if len(d.log) == 0 {
		return 0
	}
	return d.log[len(d.log)-1].Index
}

// position is where index is or would be.
func (d *Disk) position(index uint64) int {
	lo, hi := 0, len(d.log)
	for lo < hi {
		if mid := (lo + hi) / 2; d.log[mid].Index < index {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

func (l *diskLog) GetLog(index uint64, log *raft.Log) error {
	if err := l.lock(); err != nil {
		return err
	}
	defer l.disk.mu.Unlock()
	i := l.disk.position(index)
	if i == len(l.disk.log) || l.disk.log[i].Index != index {
		return raft.ErrLogNotFound
	}
	*log = l.disk.log[i]
	return nil
}

func (l *diskLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

func (l *diskLog) StoreLogs(logs []*raft.Log) error {
	if err := l.lock(); err != nil {
		return err
	}
	defer l.disk.mu.Unlock()
	last := l.disk.last()
	for _, log := range logs {
		switch {
		case log.Index <= last && last > 0:
			return fmt.Errorf("append log: index %d after %d: raft removes a tail before it writes another", log.Index, last)
		case log.Index != last+1 && last > 0:
			return fmt.Errorf("append log: index %d after %d leaves a gap", log.Index, last)
		}
		last = log.Index
	}
	for _, log := range logs {
		l.disk.log = append(l.disk.log, *log)
	}
	return nil
}

func (l *diskLog) DeleteRange(lo, hi uint64) error {
	if err := l.lock(); err != nil {
		return err
	}
	defer l.disk.mu.Unlock()
	d := l.disk
	from, to := d.position(lo), d.position(hi+1)
	if from >= to {
		return nil
	}
	if from > 0 && to < len(d.log) {
		return fmt.Errorf("delete log range %d to %d: it is neither a head nor a tail", lo, hi)
	}
	d.log = append(append([]raft.Log(nil), d.log[:from]...), d.log[to:]...)
	return nil
}
