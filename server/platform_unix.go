//go:build unix

package server

import (
	"context"
	"math"
	"net"
	"syscall"

	"github.com/holdfast/holdfast/server/peer/wire"
)

// openFiles is how many files the process may have open.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxUint64
	}
	return uint64(limit.Cur)
}

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
