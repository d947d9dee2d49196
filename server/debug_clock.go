package server

import (
	"sync"
	"time"

	"github.com/holdfast/holdfast/server/replica"
)

// skewedClock is the machine's clock with the errors that DEBUG CLOCK asks for; only --debug
// uses it. Holdfast claims that errors of wall clocks do not matter, and that a rate error of the
// monotonic clock stretches leases by just that factor. The partition tests try both.
type skewedClock struct {
	real replica.Clock

	mu sync.Mutex
	// Monotonic time reads base + (real - since) * permille / 1000.
	base, since time.Duration
	permille    int64
	// The wall clock is ahead by jump; with a period, in every other one only.
	jump, period time.Duration
	strobeSince  time.Duration
}

func newSkewedClock(real replica.Clock) *skewedClock {
	return &skewedClock{real: real, permille: 1000}
}

// Monotonic implements replica.Clock.
func (c *skewedClock) Monotonic() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.monotonicLocked(c.real.Monotonic())
}

func (c *skewedClock) monotonicLocked(now time.Duration) time.Duration {
	return c.base + (now-c.since)*time.Duration(c.permille)/1000
}

// Wall implements replica.Clock.
func (c *skewedClock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	jump := c.jump
	if c.period > 0 && ((c.real.Monotonic()-c.strobeSince)/c.period)%2 == 1 {
		jump = 0
	}
	return c.real.Wall().Add(jump)
}

// setJump moves the wall clock. With a period above 0 the clock flips between moved and true.
func (c *skewedClock) setJump(jump, period time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jump, c.period, c.strobeSince = jump, period, c.real.Monotonic()
}

// setRate changes the speed of monotonic time from now on, without a step.
func (c *skewedClock) setRate(permille int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.real.Monotonic()
	c.base, c.since, c.permille = c.monotonicLocked(now), now, permille
}
