package server

import (
	"sync"
	"time"

	"github.com/holdfast/holdfast/server/replica"
)

// bentClock is the machine's clock, misleading on request: DEBUG CLOCK.
// Holdfast's claim is that wall clocks do not matter, and that a rate error of
// the monotonic clock stretches leases by just that factor; the partition tests
// try both. It is used only with --debug.
type bentClock struct {
	real replica.Clock

	mu sync.Mutex
	// Monotonic time reads base + (real - since) * permille / 1000.
	base, since time.Duration
	permille    int64
	// The wall clock reads jump more; while strobing, in every other period only.
	jump, period time.Duration
	strobeSince  time.Duration
}

func newBentClock(real replica.Clock) *bentClock {
	return &bentClock{real: real, permille: 1000}
}

// Monotonic implements replica.Clock.
func (c *bentClock) Monotonic() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.monotonicLocked(c.real.Monotonic())
}

func (c *bentClock) monotonicLocked(now time.Duration) time.Duration {
	return c.base + (now-c.since)*time.Duration(c.permille)/1000
}

// Wall implements replica.Clock.
func (c *bentClock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	jump := c.jump
	if c.period > 0 && ((c.real.Monotonic()-c.strobeSince)/c.period)%2 == 1 {
		jump = 0
	}
	return c.real.Wall().Add(jump)
}

// setJump moves the wall clock; a period above 0 makes it flip between moved and true.
func (c *bentClock) setJump(jump, period time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jump, c.period, c.strobeSince = jump, period, c.real.Monotonic()
}

// setRate changes the speed of monotonic time from now on, without a step.
func (c *bentClock) setRate(permille int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.real.Monotonic()
	c.base, c.since, c.permille = c.monotonicLocked(now), now, permille
}
