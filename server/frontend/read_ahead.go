package frontend

import (
	"errors"
	"os"
	"time"
)

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
