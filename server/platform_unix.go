//go:build unix

package server

import (
	"context"
	"math"
	"net"
	"syscall"

	"github.com/holdfast/holdfast/server/peer/wire"
)

// openFiles returns the process's limit of open files.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxUint64
	}
	return uint64(limit.Cur)
}

// dialPeer connects to another node. TCP_MAXSEG, set before connecting, bounds the segments in both directions, as it
// is announced to the other side.
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
