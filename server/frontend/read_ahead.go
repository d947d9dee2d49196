package frontend

import (
	"errors"
	"os"
	"time"
)

// readAhead reads from a connection while its own goroutine waits for something
// else: for a blocking command, or for the client to take replies. Until join it owns
// the connection's input buffer.
type readAhead struct {
	done chan struct{}
	// How many bytes were read, and the error that ended it. Written before done is closed.
	bytes  int
	failed error
}

// readAhead starts to read, until limit bytes wait in the buffer or [conn.join] is
// called. It calls gone when the client is, or when the server wants the connection to end.
//
// It appends to the buffer and never moves what is there, as the words of the
// command that waits are slices of it.
func (c *conn) readAhead(limit int, gone func()) *readAhead {
	a := &readAhead{done: make(chan struct{})}
	c.setReadDeadline(time.Time{})
	go func() {
		defer close(a.done)
		for w := c.w; w.buffered() < limit; {
			if cap(w.in)-len(w.in) < waitBytes {
				c.grow()
			}
			free := w.in[len(w.in):min(cap(w.in), w.from+limit)]
			n, err := c.nc.Read(free)
			w.in = w.in[:len(w.in)+n]
			a.bytes += n
			if err != nil {
				gone()
				a.failed = err
				return
			}
		}
	}()
	return a
}

// join ends reading ahead.
func (c *conn) join(a *readAhead) {
	if a == nil {
		return
	}
	c.setReadDeadline(longAgo())
	<-a.done
	c.setReadDeadline(time.Time{})
	c.fresh = c.fresh || a.bytes > 0
	c.srv.stats.bytesIn.Add(uint64(a.bytes))
	if !errors.Is(a.failed, os.ErrDeadlineExceeded) {
		c.pendingErr = a.failed
	}
}
