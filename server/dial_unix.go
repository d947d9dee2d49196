//go:build unix

package server

import (
	"context"
	"net"
	"syscall"

	"github.com/holdfast/holdfast/server/peer/wire"
)

// dialPeer connects to another node. TCP_MAXSEG before the connection is made bounds what either side sends at a time:
// the other side is told of it.
func dialPeer(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	if wire.HasSmallSegments(ctx) {
		d.Control = func(_, _ string, raw syscall.RawConn) error {
			var failed error
			err := raw.Control(func(fd uintptr) {
				failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, wire.Segment)
			})
			if err == nil {
				err = failed
			}
			return err
		}
	}
	return d.DialContext(ctx, network, addr)
}
