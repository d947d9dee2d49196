package replica

import (
	"context"
	"slices"
	"sync"
)

// watermark is a number that only grows, and that callers can wait for.
type watermark struct {
	mu      sync.Mutex
	value   uint64
	waiters []*waterWaiter
}

type waterWaiter struct {
	value uint64
	done  chan struct{}
}

// reach raises the mark.
func (w *watermark) reach(value uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if value <= w.value {
		return
	}
	w.value = value
	w.waiters = slices.DeleteFunc(w.waiters, func(x *waterWaiter) bool {
		if x.value > value {
			return false
		}
		close(x.done)
		return true
	})
}

func (w *watermark) load() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.value
}

// wait returns nil when the mark is reached, or an error if one of the channels is closed before.
func (w *watermark) wait(value uint64, gone <-chan struct{}, expired <-chan struct{}) error {
	w.mu.Lock()
	if w.value >= value {
		w.mu.Unlock()
		return nil
	}
	x := &waterWaiter{value: value, done: make(chan struct{})}
	w.waiters = append(w.waiters, x)
	w.mu.Unlock()
	select {
	case <-x.done:
		return nil
	case <-gone:
	case <-expired:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters = slices.DeleteFunc(w.waiters, func(y *waterWaiter) bool { return y == x })
	return errReroute
}

// gate delays the callers of wait until it is open.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // closed while the gate is open
	isOpen bool
}

func newGate() *gate { return &gate{opened: make(chan struct{})} }

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.isOpen {
		g.isOpen = true
		close(g.opened)
	}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isOpen {
		g.isOpen = false
		g.opened = make(chan struct{})
	}
}

func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	select {
	case <-opened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
