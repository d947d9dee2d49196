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
	// waitBytes is the size of the buffer of an idle connection that is no plain socket.
	waitBytes = 512
	// pooledIn is the size of a new input buffer.
	pooledIn = 16 << 10
	// keepBytes and keepSlots bound the buffers that return to the pool.
	keepBytes = 256 << 10
	keepSlots = 4096
	// minRoom is the free space that a read needs.
	minRoom = 4 << 10
	// readMoreTime bounds the wait for the rest of an incomplete command before the complete commands before it run.
	readMoreTime = 5 * time.Millisecond
	// lookTime bounds a look for input between messages, on a connection that is no plain socket.
	lookTime = time.Millisecond
)

// Heard returns the time of the client's last bytes since the renewer demanded it. Any goroutine may call Heard.
func (st *stream) Heard() time.Time { return st.born.Add(time.Duration(st.lastInput.after.Load())) }

// buffered returns the number of bytes that have arrived and are not parsed yet.
func (w *work) buffered() int { return len(w.in) - w.from }

// hasRoom reports whether the input buffer has the free space that a read needs.
func (w *work) hasRoom() bool { return cap(w.in)-w.buffered() >= minRoom }

// room returns the free space for input.
func (st *stream) room() []byte {
	w := st.w
	if w.from > 0 && (w.from == len(w.in) || cap(w.in)-len(w.in) < minRoom) {
		w.in = w.in[:copy(w.in, w.in[w.from:])]
		w.from = 0
	}
	if !w.hasRoom() {
		st.grow()
	}
	return w.in[len(w.in):cap(w.in)]
}

// largerInput returns the size of the next larger input buffer. It follows the bytes that have arrived, not the size
// that the client has announced: it doubles at most, up to the size of the largest command.
func (st *stream) largerInput() int {
	have := st.w.buffered()
	size := min(2*have, have+max(st.w.reader.Missing(), have/4), st.srv.cfg.MaxQueryBytes)
	return max(size+pooledIn, have+minRoom)
}

// grow replaces the input buffer by a larger one.
func (st *stream) grow() {
	w := st.w
	bigger := make([]byte, w.buffered(), st.largerInput())
	copy(bigger, w.in[w.from:])
	w.in, w.from = bigger, 0
	st.onGrowth()
}

// shrink moves the input behind large commands into a small buffer. Their bytes are in the batch.
func (w *work) shrink() {
	if rest := w.in[w.from:]; cap(w.in) > keepBytes && len(rest) <= pooledIn {
		w.in, w.from = append(make([]byte, 0, 2*pooledIn), rest...), 0
	}
	w.reserved = 0
}

// noteRead records that n bytes were read into the room.
func (st *stream) noteRead(n int) {
	w := st.w
	w.filled = n == cap(w.in)-len(w.in)
	w.in = w.in[:len(w.in)+n]
	st.srv.metrics.BytesIn.Add(uint64(n))
	if n > 0 {
		st.lastInput.note(st.born)
	}
}

// awaitInput waits for bytes that can be served, and delivers messages meanwhile. An idle connection has no buffer
// while it waits.
func (c *conn) awaitInput() error {
	for {
		more := c.deliver()
		switch {
		case c.disconnected:
			return net.ErrClosed
		case c.resume():
			return nil
		case c.fresh && c.parked == nil:
			c.arrived = time.Now() // input arrived while the client did not take a message
			return nil
		case c.pendingErr != nil:
			return c.pendingErr
		}
		c.releaseEmpty()
		err := c.reserve()
		if err == nil {
			err = c.waitReadable(more)
		}
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

// errMessages is the result of waitReadable if there are messages to deliver.
var errMessages = errors.New("messages have come")

// waitReadable waits for input and reads it. It returns errMessages if there are messages instead. If more is set,
// there are messages already, and it does not wait: a client's input is read even while it gets many messages.
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

// readMore reads more of the pipeline, and reports whether any has arrived. A client that has sent a single command is
// waiting for the reply, so readMore does not look. If the buffer ends within a command, the client is still sending,
// and readMore waits for a moment. It does not wait for the memory of a large command.
func (st *stream) readMore() bool {
	w := st.w
	partial := w.buffered() > 0
	if w.commands == 0 || w.commands == 1 && !partial && !w.filled || st.unreserved() > 0 {
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

// read reads once into the buffer. If noWait is set and there is no input, it returns os.ErrDeadlineExceeded.
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

// acquireWork takes memory for a pipeline from the pool.
func (s *Server) acquireWork(st *stream) *work {
	w := s.pool.Get().(*work)
	if cap(w.in) == 0 {
		w.in = make([]byte, 0, pooledIn)
	}
	w.reader.Reset(st.readerLimits())
	return w
}

// releaseWork returns w to the pool, without buffers that have become large.
func (s *Server) releaseWork(w *work) {
	w.in, w.from, w.filled, w.reserved = shrunk(w.in), 0, false, 0
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

// readerLimits returns the limits of the request reader for this client.
func (st *stream) readerLimits() protocol.Limits {
	l := &st.srv.cfg.Limits
	return protocol.Limits{
		MaxArgs: l.MaxArgs, MaxBulkBytes: l.MaxBulkBytes, MaxInlineBytes: maxInline, MaxQueryBytes: l.MaxQueryBytes,
		Unauthenticated: !st.authenticated,
	}
}

// maxInline is Redis's limit of a line.
const maxInline = 64 << 10

// setAuthenticated sets whether the client has authenticated.
func (c *conn) setAuthenticated(yes bool) {
	if yes != c.authenticated {
		c.srv.setKnown(c, yes)
	}
	c.authenticated = yes
	if c.w != nil {
		c.w.reader.SetLimits(c.readerLimits())
	}
}

// releaseEmpty is releaseIdle for a connection that waits for a message.
func (st *stream) releaseEmpty() {
	if st.w != nil && st.w.buffered() == 0 {
		st.srv.releaseWork(st.w)
		st.w = nil
	}
}

// readAhead reads input while the connection's goroutine waits for a blocking command, or for the client to take
// replies. It owns the input buffer until join.
type readAhead struct {
	done chan struct{}
	// bytes is the number of bytes that were read, and failed the error that ended reading. Both are set before done is
	// closed.
	bytes  int
	failed error
}

// readAhead reads until limit bytes wait in the buffer, or until [stream.join]. It calls onEnd if the client
// disconnects or the server ends the connection.
//
// It never moves bytes in the buffer, since the arguments of the waiting command are slices of the buffer.
func (st *stream) readAhead(limit int, onEnd func()) *readAhead {
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
				onEnd()
				a.failed = err
				return
			}
		}
	}()
	return a
}

// join stops the readAhead, and waits for its end.
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
