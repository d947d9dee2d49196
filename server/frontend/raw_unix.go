//go:build unix

package frontend

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// rawConn is the socket of nc; nil when nc is not a plain socket.
func rawConn(nc net.Conn) syscall.RawConn {
	t, ok := nc.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// readRaw reads from the socket when it is readable, and takes a buffer only then. net.Conn's Read
// would hold a buffer while the client is silent, and always waits.
func (c *conn) readRaw(noWait bool) error {
	if c.readReady == nil {
		c.readReady = c.onReadable
	}
	c.noWait = noWait
	if err := c.raw.Read(c.readReady); err != nil {
		return err
	}
	return c.readErr
}

// onReadable is called when the socket may be readable. A result of false means to wait.
func (c *conn) onReadable(fd uintptr) bool {
	idle := c.w == nil
	if idle {
		c.w = c.srv.acquireWork(c)
	}
	n, err := readSocket(int(fd), c.room())
	switch {
	case n > 0:
		c.noteRead(n)
		c.readErr = nil
		return true
	case err == nil:
		c.readErr = io.EOF
		return true
	case !errors.Is(err, syscall.EAGAIN):
		c.readErr = os.NewSyscallError("read", err)
		return true
	}
	if idle {
		c.srv.releaseWork(c.w)
		c.w = nil
	}
	c.readErr = os.ErrDeadlineExceeded
	return c.noWait
}

func readSocket(fd int, b []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, b)
		if err != syscall.EINTR {
			return n, err
		}
	}
}
