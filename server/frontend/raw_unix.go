//go:build unix

package frontend

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// rawConn returns the socket of nc, or nil if nc is no plain socket.
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

// readRaw waits until the socket is readable, then takes a buffer and reads. Read of net.Conn needs a buffer while the
// client is silent, and always waits.
func (st *stream) readRaw(noWait bool) error {
	if st.readReady == nil {
		st.readReady = st.onReadable
	}
	if st.w != nil {
		st.room() // and not in the callback: an eviction closes sockets, and each close waits for its socket's callback
	}
	st.noWait = noWait
	if err := st.raw.Read(st.readReady); err != nil {
		return err
	}
	return st.readErr
}

// onReadable is called when the socket may be readable. It returns false to wait again.
func (st *stream) onReadable(fd uintptr) bool {
	idle := st.w == nil
	if idle {
		st.w = st.srv.acquireWork(st)
	}
	n, err := readSocket(int(fd), st.room())
	switch {
	case n > 0:
		st.noteRead(n)
		st.readErr = nil
		return true
	case err == nil:
		st.readErr = io.EOF
		return true
	case !errors.Is(err, syscall.EAGAIN):
		st.readErr = os.NewSyscallError("read", err)
		return true
	}
	if idle {
		st.srv.releaseWork(st.w)
		st.w = nil
	}
	st.readErr = os.ErrDeadlineExceeded
	return st.noWait
}

func readSocket(fd int, b []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, b)
		if err != syscall.EINTR {
			return n, err
		}
	}
}
