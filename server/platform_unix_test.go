//go:build unix

package server

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/peer/wire"
)

// TestSmallSegments: on a path that loses large packets, both ends of a connection are held to small ones.
func TestSmallSegments(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	segment := func(c net.Conn) (size int) {
		raw, err := c.(*net.TCPConn).SyscallConn()
		require.NoError(t, err)
		require.NoError(t, raw.Control(func(fd uintptr) {
			size, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG)
		}))
		require.NoError(t, err)
		return size
	}
	ctx := t.Context()
	for _, small := range []bool{false, true} {
		if small {
			ctx = wire.SmallSegments(ctx)
		}
		there, err := dialPeer(ctx, "tcp", l.Addr().String())
		require.NoError(t, err)
		defer there.Close()
		here, err := l.Accept()
		require.NoError(t, err)
		defer here.Close()
		require.Equal(t, small, segment(there) <= wire.Segment, "%d bytes", segment(there))
		require.Equal(t, small, segment(here) <= wire.Segment, "%d bytes", segment(here))
	}
}
