package replicatest

import (
	"sync"
	"time"

	"github.com/holdfast/holdfast/server/replica"
)

// Clock is a node's clock, and goes with virtual time until told otherwise.
type Clock struct {
	mu     sync.Mutex
	base   time.Duration // monotonic reading at since
	since  time.Time
	rate   float64
	frozen bool
	shown  time.Duration // while frozen
	jump   time.Duration
	strobe strobe
}

// strobe is a wall clock that flips, every period since began, between the usual reading and by
// more.
type strobe struct {
	by, period time.Duration
	began      time.Time
}

var _ replica.Clock = (*Clock)(nil)

func newClock() *Clock { return &Clock{since: time.Now(), rate: 1} }

// Monotonic implements replica.Clock.
func (c *Clock) Monotonic() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frozen {
		return c.shown
	}
	return c.reading()
}

func (c *Clock) reading() time.Duration {
	return c.base + time.Duration(float64(time.Since(c.since))*c.rate)
}

// Wall implements replica.Clock.
func (c *Clock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now().Add(c.jump)
	if s := c.strobe; s.period > 0 && time.Since(s.began)/s.period%2 == 1 {
		return now.Add(s.by)
	}
	return now
}

// Jump moves the wall clock by d.
func (c *Clock) Jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jump += d
}

// Strobe makes the wall clock flip, every period, between the usual reading and d more.
func (c *Clock) Strobe(d, period time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.strobe = strobe{d, period, time.Now()}
}

// SetWallTrue undoes Jump and Strobe.
func (c *Clock) SetWallTrue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jump, c.strobe = 0, strobe{}
}

// SetRate makes monotonic time pass at rate times virtual time, from now on.
func (c *Clock) SetRate(rate float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.since, c.rate = c.reading(), time.Now(), rate
}

// Freeze stops the monotonic clock's readings, as for a process that gets no CPU; Thaw lets the
// clock jump to where it would have been.
func (c *Clock) Freeze() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.frozen {
		c.shown, c.frozen = c.reading(), true
	}
}

// Thaw undoes Freeze.
func (c *Clock) Thaw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen = false
}
