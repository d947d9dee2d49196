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
	// reserve is the number of descriptors kept for a shortage: each new segment of the log needs one, and a manifest
	// one for a moment.
	reserve = 4
	// retryAfter is the pause of a Patient before it tries to open a file again.
	retryAfter = 50 * time.Millisecond
)

// Patient is an FS that survives a shortage of file descriptors, which is no fault of the disk: it uses a reserve of
// descriptors, and then waits for a free one.
type Patient struct {
	FS
	file   string // opened for the reserve
	logger *slog.Logger
	stop   chan struct{}

	mu      sync.Mutex // guards all below
	kept    []io.Closer
	waits   bool // calls wait for a descriptor instead of failing
	logged  bool // this shortage has been logged
	stopped bool
}

// NewPatient returns a Patient. file is any existing file, which the reserve keeps open.
func NewPatient(fsys FS, file string, logger *slog.Logger) *Patient {
	p := &Patient{FS: fsys, file: file, logger: logger, stop: make(chan struct{})}
	p.refill()
	return p
}

// Start makes calls wait for a descriptor once the reserve is used up. Before Start they fail.
func (p *Patient) Start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits = true
}

// Stop ends all waits, and makes later calls fail instead of waiting. The reserve is kept until Close.
func (p *Patient) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.stopped = true
		close(p.stop)
	}
}

// Close stops, and closes the reserve.
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

// insist repeats the call until it succeeds or fails for another reason than a shortage.
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

// lend closes a descriptor of the reserve, and returns false if there is none. If another goroutine takes the
// descriptor first, the caller calls lend again.
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
	p.logged = false
}

// wait pauses before the next attempt, and returns false if the call must fail.
func (p *Patient) wait(err error) bool {
	p.mu.Lock()
	waits := p.waits
	if waits && !p.logged {
		p.logged = true
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
