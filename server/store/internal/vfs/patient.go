package vfs

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// reserve is how many descriptors are kept for a shortage: each new segment of the log takes one, and
	// a manifest one for a moment.
	reserve = 4
	// retryAfter is how long a Patient waits before it asks for a descriptor again.
	retryAfter = 50 * time.Millisecond
)

// Patient is an FS that goes on when the process, or the machine, has no file descriptors left: a
// Patient keeps some in reserve, and then waits for a free descriptor. A shortage is not a fault of
// a disk.
type Patient struct {
	FS
	file   string // that the reserve opens
	logger *slog.Logger
	stop   chan struct{}

	mu      sync.Mutex // guards all below
	kept    []io.Closer
	waits   bool // rather than fail; until stop
	told    bool // of this shortage
	stopped bool
}

// NewPatient needs the name of any file that is there.
func NewPatient(fsys FS, file string, logger *slog.Logger) *Patient {
	p := &Patient{FS: fsys, file: file, logger: logger, stop: make(chan struct{})}
	p.refill()
	return p
}

// Start makes calls wait that meet a shortage when nothing is left of the reserve. Until then such calls fail.
func (p *Patient) Start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits = true
}

// Stop ends all waiting, for good. The reserve stays until Close.
func (p *Patient) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.stopped = true
		close(p.stop)
	}
}

// Close stops, and gives the reserve back.
func (p *Patient) Close() {
	p.Stop()
	for p.lend() {
	}
}

// Open implements FS.
func (p *Patient) Open(name string, flag int) (f File, err error) {
	err = p.insist(func() error { f, err = p.FS.Open(name, flag); return err })
	return f, err
}

// SyncDir implements FS.
func (p *Patient) SyncDir(dir string) error {
	return p.insist(func() error { return p.FS.SyncDir(dir) })
}

// insist makes the call until the call fails for another reason than a shortage, or does not fail.
func (p *Patient) insist(call func() error) error {
	for {
		err := call()
		if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
			p.refill()
			return err
		}
		if !p.lend() && !p.wait(err) {
			return err
		}
	}
}

// lend frees a descriptor of the reserve. Another goroutine may take the descriptor first: then
// there is the next.
func (p *Patient) lend() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.kept)
	if n == 0 {
		return false
	}
	_ = p.kept[n-1].Close()
	p.kept = p.kept[:n-1]
	return true
}

func (p *Patient) refill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.kept) < reserve && !p.stopped {
		f, err := p.FS.Open(p.file, os.O_RDONLY)
		if err != nil {
			return
		}
		p.kept = append(p.kept, f)
	}
	p.told = false
}

// wait returns false if there is nothing to wait for.
func (p *Patient) wait(err error) bool {
	p.mu.Lock()
	waits := p.waits
	if waits && !p.told {
		p.told = true
		p.logger.Warn("the log waits for a file descriptor", "error", err)
	}
	p.mu.Unlock()
	if !waits {
		return false
	}
	timer := time.NewTimer(retryAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.stop:
		return false
	}
}
