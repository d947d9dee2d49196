package resp

import (
	"errors"
	"os"
	"time"
)

// readAhead reads from a connection while its own goroutine waits for something
// else: for a blocking command, or for the client to take replies.
type readAhead struct {
	done chan struct{}
	// What was read, and the error that ended it. Written before done is closed.
	bytes  []byte
	failed error
}

// readAhead starts to read, at most limit bytes, until [conn.join]. It calls gone
// when the client is, or when the server wants the connection to end.
func (c *conn) readAhead(limit int, gone func()) *readAhead {
	a := &readAhead{done: make(chan struct{})}
	c.setReadDeadline(time.Time{})
	go func() {
		defer close(a.done)
		buf := make([]byte, firstRead)
		for len(a.bytes) < limit {
			n, err := c.nc.Read(buf)
			a.bytes = append(a.bytes, buf[:n]...)
			if n == len(buf) && n < pooledIn {
				buf = make([]byte, 2*n)
			}
			if err != nil {
				gone()
				a.failed = err
				return
			}
		}
	}()
	return a
}

// join ends reading ahead and puts what was read behind what had arrived before.
func (c *conn) join(a *readAhead) {
	if a == nil {
		return
	}
	c.setReadDeadline(longAgo())
	<-a.done
	c.setReadDeadline(time.Time{})
	c.w.in = append(c.w.in, a.bytes...)
	c.fresh = c.fresh || len(a.bytes) > 0
	c.srv.stats.bytesIn.Add(uint64(len(a.bytes)))
	if !errors.Is(a.failed, os.ErrDeadlineExceeded) {
		c.failed = a.failed
	}
}
