package frontend

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

const (
	// waitBytes is the buffer of a connection that waits and is no plain socket.
	waitBytes = 512
	// pooledIn is the size of a fresh input buffer.
	pooledIn = 16 << 10
	// keepBytes bounds each buffer that goes back to the pool.
	keepBytes = 256 << 10
	// keepSlots does so for slots.
	keepSlots = 4096
	// leastRoom is what must be free in the buffer before a read.
	leastRoom = 4 << 10
	// readMoreTime is how long a pipeline whose last command is half there is
	// waited for before what is complete is sent off.
	readMoreTime = 5 * time.Millisecond
)

// input is the reading half of a connection.
type input struct {
	// arrived is when the last bytes arrived.
	arrived time.Time
	// waitBuffer is the waiting buffer of a connection that is no plain socket.
	waitBuffer []byte
	// pendingErr is an error that a read brought along; the next wait returns it.
	pendingErr error
	// readMoreUntil ends the gathering of one pipeline.
	readMoreUntil time.Time
	// fresh: bytes were read ahead since the buffer was last parsed.
	fresh bool
	// hasDeadline: a read deadline is set.
	hasDeadline bool
	// What readReady is called for (once: do not wait), and with what result.
	noWait    bool
	readErr   error
	readReady func(fd uintptr) bool
}

// buffered is how many bytes have arrived and are not parsed.
func (w *work) buffered() int { return len(w.in) - w.from }

// room returns free space behind the bytes that have arrived.
func (c *conn) room() []byte {
	w := c.w
	if w.from > 0 && (w.from == len(w.in) || cap(w.in)-len(w.in) < leastRoom) {
		w.in = w.in[:copy(w.in, w.in[w.from:])]
		w.from = 0
	}
	if cap(w.in)-len(w.in) < leastRoom {
		c.grow()
	}
	return w.in[len(w.in):cap(w.in)]
}

// grow gives the input a bigger buffer. It at most doubles with what has arrived,
// whatever the client announced, and ends where the largest command does.
func (c *conn) grow() {
	w := c.w
	have := w.in[w.from:]
	size := max(min(2*len(have), c.srv.cfg.MaxQueryBytes)+pooledIn, len(have)+leastRoom)
	bigger := make([]byte, len(have), size)
	copy(bigger, have)
	w.in, w.from = bigger, 0
	c.account()
}

// noteRead notes n bytes that were read into the room.
func (c *conn) noteRead(n int) {
	w := c.w
	w.filled = n == cap(w.in)-len(w.in)
	w.in = w.in[:len(w.in)+n]
	c.srv.stats.bytesIn.Add(uint64(n))
}

// await waits until bytes have arrived, without holding any memory for them if
// the connection has nothing under way.
func (c *conn) await() error {
	if c.pendingErr != nil {
		return c.pendingErr
	}
	if idle := c.srv.cfg.IdleTimeout; idle > 0 {
		c.hasDeadline = true
		c.setReadDeadline(time.Now().Add(idle))
	} else if c.hasDeadline {
		c.hasDeadline = false
		c.setReadDeadline(time.Time{})
	}
	if err := c.read(false); err != nil {
		return err
	}
	c.arrived = time.Now()
	return nil
}

// readMore looks whether more of the pipeline has come, and reports so. A client
// that has sent one command waits for its reply, so nothing is looked for. If
// the buffer ends within a command, the client is surely still sending, and gets a moment.
func (c *conn) readMore() bool {
	w := c.w
	partial := w.buffered() > 0
	if w.commands == 0 || w.commands == 1 && !partial && !w.filled {
		return false
	}
	if c.raw != nil {
		switch err := c.read(true); {
		case err == nil:
			return true
		case !errors.Is(err, os.ErrDeadlineExceeded):
			c.pendingErr = err
			return false
		case !partial:
			return false
		}
	} else if !partial && !w.filled {
		return false
	}
	now := time.Now()
	if c.readMoreUntil.IsZero() {
		c.readMoreUntil = now.Add(readMoreTime)
	}
	if !now.Before(c.readMoreUntil) {
		return false
	}
	c.hasDeadline = true
	c.setReadDeadline(c.readMoreUntil)
	err := c.read(false)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.pendingErr = err
	}
	return err == nil
}

// read reads once into the buffer. With once it does not wait: when nothing is
// there it returns os.ErrDeadlineExceeded.
func (c *conn) read(once bool) error {
	if c.raw != nil {
		return c.readRaw(once)
	}
	if c.w != nil {
		n, err := readSome(c.nc, c.room())
		c.noteRead(n)
		return err
	}
	if c.waitBuffer == nil {
		c.waitBuffer = make([]byte, waitBytes)
	}
	n, err := readSome(c.nc, c.waitBuffer)
	if err != nil {
		return err
	}
	c.w = c.srv.acquireWork(c)
	copy(c.room(), c.waitBuffer[:n])
	c.noteRead(n)
	c.w.filled = n == len(c.waitBuffer)
	return nil
}

// readSome reads until there are bytes or an error. An error that comes with
// bytes is dropped: the next read brings it again.
func readSome(r io.Reader, b []byte) (n int, err error) {
	for n == 0 && err == nil {
		n, err = r.Read(b)
	}
	if n > 0 {
		err = nil
	}
	return n, err
}

// acquireWork takes the memory for a pipeline of c from the pool.
func (s *Server) acquireWork(c *conn) *work {
	w := s.pool.Get().(*work)
	w.reader.Reset(c.readerLimits())
	return w
}

// releaseWork gives it back, without what a big pipeline made it grow to.
func (s *Server) releaseWork(w *work) {
	w.in, w.from, w.filled = shrunk(w.in), 0, false
	w.out, w.local, w.batch.Body = shrunk(w.out), shrunk(w.local), shrunk(w.batch.Body)
	if cap(w.slots) > keepSlots {
		w.slots = nil
	}
	s.pool.Put(w)
}

func shrunk(b []byte) []byte {
	if cap(b) > keepBytes {
		return nil
	}
	return b[:0]
}

// readerLimits are what the request reader is to allow this client.
func (c *conn) readerLimits() protocol.Limits {
	l := &c.srv.cfg.Limits
	return protocol.Limits{
		MaxArgs: l.MaxArgs, MaxBulkBytes: l.MaxBulkBytes, MaxInlineBytes: maxInline, MaxQueryBytes: l.MaxQueryBytes,
		Unauthenticated: !c.authenticated,
	}
}

// maxInline is Redis's limit of a line.
const maxInline = 64 << 10

// setAuthenticated says whether the client may do more than authenticate.
func (c *conn) setAuthenticated(yes bool) {
	if yes != c.authenticated {
		c.srv.setKnown(c, yes)
	}
	c.authenticated = yes
	if c.w != nil {
		c.w.reader.SetLimits(c.readerLimits())
	}
}
