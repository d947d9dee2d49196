package wire

import (
	"context"
	"net"

	"github.com/holdfast/holdfast/protocol/mutant"
)

type smallSegments struct{}

// SmallSegments asks a dial for a connection whose packets are small in both directions: a path may lose large packets,
// and pass small ones on (a black hole of the path's MTU). TCP sends a lost packet again at the same size for ever.
func SmallSegments(ctx context.Context) context.Context {
	return context.WithValue(ctx, smallSegments{}, true)
}

// HasSmallSegments reports whether [SmallSegments] made ctx.
func HasSmallSegments(ctx context.Context) bool {
	return ctx.Value(smallSegments{}) != nil && !mutant.LargePackets
}

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
