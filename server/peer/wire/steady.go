package wire

import (
	"errors"
	"net"
	"os"
	"time"
)

const (
	// takeWithin is how long the other end of a connection may take nothing of what is written to it.
	takeWithin = 10 * time.Second
	// takeBytes is how much is written before the deadline is looked at again: with TLS, which
	// cannot go on after one, a connection that takes less in half of takeWithin may be given up.
	takeBytes = 256 << 10
)

// Steady is a connection whose writes fail when the other end takes nothing for a while, and
// only then, however long they are.
type Steady struct {
	net.Conn
	until time.Time // the deadline that is set
}

// Write writes b piece by piece.
func (s *Steady) Write(b []byte) (n int, err error) {
	for err == nil && n < len(b) {
		if now := time.Now(); s.until.Sub(now) < takeWithin/2 {
			// A deadline that is far enough is left as it is: moving it costs more than a small write.
			s.until = now.Add(takeWithin)
			_ = s.SetWriteDeadline(s.until)
		}
		var wrote int
		wrote, err = s.Conn.Write(b[n:min(len(b), n+takeBytes)])
		n += wrote
		if wrote > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			err, s.until = nil, time.Time{} // TLS alone cannot go on after that
		}
	}
	return n, err
}
