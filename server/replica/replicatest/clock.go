package replicatest

import (
	"sync"
	"time"

	"github.com/holdfast/holdfast/server/replica"
)

// Clock is a node's clock. It goes with virtual time until told otherwise.
type Clock struct {
	mu     sync.Mutex
	base   time.Duration // monotonic reading at since
	since  time.Time
	rate   float64
	frozen bool
	jump   time.Duration
}

var _ replica.Clock = (*Clock)(nil)

func newClock() *Clock { return &Clock{since: time.Now(), rate: 1} }

// Monotonic implements replica.Clock.
func (c *Clock) Monotonic() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reading()
}

func (c *Clock) reading() time.Duration {
	if c.frozen {
		return c.base
	}
	return c.base + time.Duration(float64(time.Since(c.since))*c.rate)
}

// Wall implements replica.Clock.
func (c *Clock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.jump)
}

// Jump moves the wall clock by d.
func (c *Clock) Jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jump += d
}

// SetRate makes monotonic time pass at rate times virtual time, from now on.
func (c *Clock) SetRate(rate float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.since, c.rate = c.reading(), time.Now(), rate
}

// Freeze stops monotonic time, as for a process that gets no CPU; Thaw lets it
// jump to where it would have been.
func (c *Clock) Freeze() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.frozen {
		c.base = c.reading()
		c.since, c.frozen = time.Now(), true
	}
}

// Thaw undoes Freeze.
func (c *Clock) Thaw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen = false
}
