package frontend

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

const (
	// waitBytes is the size of the buffer in which a connection waits that is not a plain socket.
	waitBytes = 512
	// pooledIn is the size of a new input buffer.
	pooledIn = 16 << 10
	// keepBytes and keepSlots bound the buffers that return to the pool.
	keepBytes = 256 << 10
	keepSlots = 4096
	// leastRoom is the space that must be free in the buffer before a read.
	leastRoom = 4 << 10
	// readMoreTime is how long the rest of an incomplete command may take before the complete
	// commands in front of it are executed.
	readMoreTime = 5 * time.Millisecond
	// lookTime is how long a connection that is not a plain socket looks for input between messages.
	lookTime = time.Millisecond
)

// Heard is the time of the client's last bytes, noted since it was demanded. Any goroutine may call Heard.
func (st *stream) Heard() time.Time { return st.born.Add(time.Duration(st.lastInput.after.Load())) }

// buffered is the number of bytes that have arrived and are not parsed yet.
func (w *work) buffered() int { return len(w.in) - w.from }

// room returns free space behind the bytes that have arrived.
func (st *stream) room() []byte {
	w := st.w
	if w.from > 0 && (w.from == len(w.in) || cap(w.in)-len(w.in) < leastRoom) {
		w.in = w.in[:copy(w.in, w.in[w.from:])]
		w.from = 0
	}
	if cap(w.in)-len(w.in) < leastRoom {
		st.grow()
	}
	return w.in[len(w.in):cap(w.in)]
}

// grow replaces the input buffer by a larger one. The buffer at most doubles with the bytes that
// have arrived, whatever size the client announced, and ends at the size of the largest command.
func (st *stream) grow() {
	w := st.w
	have := w.in[w.from:]
	size := max(min(2*len(have), st.srv.cfg.MaxQueryBytes)+pooledIn, len(have)+leastRoom)
	bigger := make([]byte, len(have), size)
	copy(bigger, have)
	w.in, w.from = bigger, 0
	st.onGrowth()
}

// noteRead notes that n bytes were read into the room.
func (st *stream) noteRead(n int) {
	w := st.w
	w.filled = n == cap(w.in)-len(w.in)
	w.in = w.in[:len(w.in)+n]
	st.srv.metrics.BytesIn.Add(uint64(n))
	if n > 0 {
		st.lastInput.note(st.born)
	}
}

// awaitInput waits until bytes have arrived that can be served, and delivers messages meanwhile. While nothing is under
// way, waiting holds no buffer.
func (c *conn) awaitInput() error {
	for {
		more := c.deliver()
		switch {
		case c.gone:
			return net.ErrClosed
		case c.resume():
			return nil
		case c.fresh && c.parked == nil:
			c.arrived = time.Now() // a command came while a message was not taken
			return nil
		case c.pendingErr != nil:
			return c.pendingErr
		}
		c.releaseEmpty()
		err := c.waitReadable(more)
		switch {
		case err != nil && err != errMessages:
			return err
		case err != nil:
		case c.parked == nil:
			c.arrived = time.Now()
			return nil
		case c.w.buffered() > c.srv.cfg.MaxQueryBytes:
			return errTooMuchInput
		}
	}
}

// errMessages is the result of waitReadable when there is something to deliver.
var errMessages = errors.New("messages have come")

// waitReadable reads input, and waits for it. It returns errMessages when messages have come instead. With more,
// messages are there already, and waitReadable does not wait: input is read also while a client gets many messages.
func (c *conn) waitReadable(more bool) error {
	if idle := c.srv.cfg.IdleTimeout; idle > 0 && c.parked == nil && !c.outbox.subscribed() {
		c.hasDeadline = true
		c.setReadDeadline(time.Now().Add(idle))
	} else if c.hasDeadline {
		c.hasDeadline = false
		c.setReadDeadline(time.Time{})
	}
	if more && c.raw == nil {
		c.hasDeadline = true
		c.setReadDeadline(time.Now().Add(lookTime))
	}
	if !more && !c.armWake(c.parked) {
		return errMessages
	}
	err := c.read(more)
	woken := more
	if !more && c.disarmWake() {
		woken, c.hasDeadline = true, false
		c.setReadDeadline(time.Time{})
	}
	if woken && errors.Is(err, os.ErrDeadlineExceeded) && !c.retired.Load() {
		return errMessages
	}
	return err
}

// readMore reports whether more of the pipeline has arrived. A client that has sent one command is
// waiting for the reply, so readMore does not look. If the buffer ends within a command, the client
// is still sending and gets a moment.
func (st *stream) readMore() bool {
	w := st.w
	partial := w.buffered() > 0
	if w.commands == 0 || w.commands == 1 && !partial && !w.filled {
		return false
	}
	if st.raw != nil {
		switch err := st.read(true); {
		case err == nil:
			return true
		case !errors.Is(err, os.ErrDeadlineExceeded):
			st.pendingErr = err
			return false
		case !partial:
			return false
		}
	} else if !partial && !w.filled {
		return false
	}
	now := time.Now()
	if st.readMoreUntil.IsZero() {
		st.readMoreUntil = now.Add(readMoreTime)
	}
	if !now.Before(st.readMoreUntil) {
		return false
	}
	st.hasDeadline = true
	st.setReadDeadline(st.readMoreUntil)
	err := st.read(false)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		st.pendingErr = err
	}
	return err == nil
}

// read reads once into the buffer. With noWait it returns os.ErrDeadlineExceeded when nothing is
// there.
func (st *stream) read(noWait bool) error {
	if st.raw != nil {
		return st.readRaw(noWait)
	}
	if st.w != nil {
		n, err := readSome(st.nc, st.room())
		st.noteRead(n)
		return err
	}
	if st.waitBuffer == nil {
		st.waitBuffer = make([]byte, waitBytes)
	}
	n, err := readSome(st.nc, st.waitBuffer)
	if err != nil {
		return err
	}
	st.w = st.srv.acquireWork(st)
	copy(st.room(), st.waitBuffer[:n])
	st.noteRead(n)
	st.w.filled = n == len(st.waitBuffer)
	return nil
}

// readSome reads until there are bytes or an error. An error that comes with bytes is dropped,
// because the next read returns the same error.
func readSome(r io.Reader, b []byte) (n int, err error) {
	for n == 0 && err == nil {
		n, err = r.Read(b)
	}
	if n > 0 {
		err = nil
	}
	return n, err
}

// acquireWork takes memory for a pipeline of c from the pool.
func (s *Server) acquireWork(st *stream) *work {
	w := s.pool.Get().(*work)
	w.reader.Reset(st.readerLimits())
	return w
}

// releaseWork returns w to the pool, without buffers that a large pipeline has grown.
func (s *Server) releaseWork(w *work) {
	w.in, w.from, w.filled = shrunk(w.in), 0, false
	w.out, w.local, w.batch.Body = shrunk(w.out), shrunk(w.local), shrunk(w.batch.Body)
	w.request = request{}
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

// readerLimits are the limits of the request reader for this client.
func (st *stream) readerLimits() protocol.Limits {
	l := &st.srv.cfg.Limits
	return protocol.Limits{
		MaxArgs: l.MaxArgs, MaxBulkBytes: l.MaxBulkBytes, MaxInlineBytes: maxInline, MaxQueryBytes: l.MaxQueryBytes,
		Unauthenticated: !st.authenticated,
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

// releaseEmpty is the part of releaseIdle that waiting for a message needs.
func (st *stream) releaseEmpty() {
	if st.w != nil && st.w.buffered() == 0 {
		st.srv.releaseWork(st.w)
		st.w = nil
	}
}

// readAhead reads from a connection while the connection's goroutine waits for a blocking command,
// or for the client to take replies. Until join the readAhead owns the input buffer.
type readAhead struct {
	done chan struct{}
	// bytes is the number of bytes read, failed the error that ended reading. Both are written
	// before done is closed.
	bytes  int
	failed error
}

// readAhead starts reading, until limit bytes wait in the buffer or [stream.join] is called. It calls
// gone when the client has left, or when the server ends the connection.
//
// Bytes in the buffer are never moved, because the arguments of the waiting command are slices of
// the buffer.
func (st *stream) readAhead(limit int, gone func()) *readAhead {
	a := &readAhead{done: make(chan struct{})}
	st.setReadDeadline(time.Time{})
	go func() {
		defer close(a.done)
		for w := st.w; w.buffered() < limit; {
			if cap(w.in)-len(w.in) < waitBytes {
				st.grow()
			}
			free := w.in[len(w.in):min(cap(w.in), w.from+limit)]
			n, err := st.nc.Read(free)
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
func (st *stream) join(a *readAhead) {
	if a == nil {
		return
	}
	st.setReadDeadline(longAgo())
	<-a.done
	st.setReadDeadline(time.Time{})
	st.fresh = st.fresh || a.bytes > 0
	st.srv.metrics.BytesIn.Add(uint64(a.bytes))
	if !errors.Is(a.failed, os.ErrDeadlineExceeded) {
		st.pendingErr = a.failed
	}
}
