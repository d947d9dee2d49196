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

// Accept serves the connections of other nodes, each on a goroutine, until ctx
// ends: then Accept closes them and waits for their goroutines.
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

// MayBe reports whether conn comes from the node of that name, as far as conn can tell: by a
// method PeerName() string.
func MayBe(conn net.Conn, name string) bool {
	peer, ok := conn.(interface{ PeerName() string })
	return !ok || peer.PeerName() == name
}

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

type smallSegments struct{}

// SmallSegments asks a dial for a connection whose packets are small in both directions: a path may lose large packets,
// and pass small ones on (a black hole of the path's MTU). TCP sends a lost packet again at the same size for ever.
func SmallSegments(ctx context.Context) context.Context {
	return context.WithValue(ctx, smallSegments{}, true)
}

// HasSmallSegments reports whether [SmallSegments] made ctx.
func HasSmallSegments(ctx context.Context) bool { return ctx.Value(smallSegments{}) != nil }

// Segment is how many bytes of data a packet of such a connection has: what fits into the packets of 576 bytes that
// every host of the Internet must take.
const Segment = 536

// Stuck tells the port that made conn that nothing passed through it any more, by a method Stuck(), if it has one: the
// next connections with that node get small segments.
func Stuck(conn net.Conn) {
	if c, ok := conn.(interface{ Stuck() }); ok {
		c.Stuck()
	}
}
