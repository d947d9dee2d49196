package wire

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// Stream is a stream of connections to and from other nodes.
type Stream interface {
	net.Listener
	DialContext(ctx context.Context, addr string) (net.Conn, error)
}

// Accept serves the connections of other nodes, each in a goroutine, until ctx ends. It then closes them, and waits for
// their goroutines.
func Accept(ctx context.Context, from net.Listener, serve func(ctx context.Context, conn net.Conn)) error {
	stop := context.AfterFunc(ctx, func() { _ = from.Close() })
	defer stop()
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		conn, err := from.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		conns.Go(func() {
			defer conn.Close()
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer stop()
			serve(ctx, conn)
		})
	}
}

// MayBe reports whether conn may come from the node with that name. A conn with a method PeerName() string tells.
func MayBe(conn net.Conn, name string) bool {
	peer, ok := conn.(interface{ PeerName() string })
	return !ok || peer.PeerName() == name
}

const (
	// takeWithin bounds the time in which the other end takes no byte of a write.
	takeWithin = 10 * time.Second
	// takeBytes is the number of bytes between two checks of the deadline. TLS cannot continue after a deadline, so a
	// connection with TLS that takes fewer in half of takeWithin may be closed.
	takeBytes = 256 << 10
)

// Steady is a connection whose writes fail only if the other end takes nothing for a while, whatever their length.
type Steady struct {
	net.Conn
	until time.Time // the deadline that is set
}

// Write writes b in pieces.
func (s *Steady) Write(b []byte) (n int, err error) {
	for err == nil && n < len(b) {
		if now := time.Now(); s.until.Sub(now) < takeWithin/2 {
			// A deadline that is far enough is kept, since moving it costs more than a small write.
			s.until = now.Add(takeWithin)
			_ = s.SetWriteDeadline(s.until)
		}
		var wrote int
		wrote, err = s.Conn.Write(b[n:min(len(b), n+takeBytes)])
		n += wrote
		if wrote > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			err, s.until = nil, time.Time{} // TLS alone cannot continue after a deadline
		}
	}
	return n, err
}

type smallSegments struct{}

// SmallSegments returns a context for a dial of a connection whose packets are small in both directions. A path may
// lose large packets only (a black hole of the path MTU), and TCP would send a lost packet at the same size forever.
func SmallSegments(ctx context.Context) context.Context {
	return context.WithValue(ctx, smallSegments{}, true)
}

// HasSmallSegments reports whether [SmallSegments] made ctx.
func HasSmallSegments(ctx context.Context) bool { return ctx.Value(smallSegments{}) != nil }

// Segment is the number of data bytes in a packet of such a connection. It fits into packets of 576 bytes, which every
// host of the Internet must accept.
const Segment = 536

// Stuck calls the method Stuck() of conn, if it has one, after nothing has passed through the connection for a while.
// The next connections with that node then have small segments.
func Stuck(conn net.Conn) {
	if c, ok := conn.(interface{ Stuck() }); ok {
		c.Stuck()
	}
}
