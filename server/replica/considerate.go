package replica

import (
	"io"
	"time"
)

// considerate writes what may take its time beside what may not: after each write it
// pauses for as long as what led to it took, restShare times. So a snapshot that is
// made while commands are executed takes a quarter of a core at most, as much as
// Go's collector, and not all of one; while nothing else goes on it takes no longer than it must.
type considerate struct {
	w io.Writer
	// others counts what others have done.
	others func() uint64

	counted uint64
	resumed time.Time
}

const restShare = 3

func (c *considerate) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	if done := c.others(); done != c.counted {
		c.counted = done
		if !c.resumed.IsZero() {
			time.Sleep(restShare * time.Since(c.resumed))
		}
	}
	c.resumed = time.Now()
	return n, err
}
