package frontend

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// socket is what a connection reads from and writes to.
type socket struct {
	id      int64           // the connection's number, for logs
	nc      net.Conn        // any goroutine may use it
	tls     *tls.Conn       // nc, if the server uses TLS
	raw     syscall.RawConn // of nc, or nil if nc is no plain socket
	writeBy time.Time       // the write deadline that is set
	// deadline guards the read deadline, which remains in the past once the connection is retired.
	deadline sync.Mutex
	// retired is set, by any goroutine, if the connection must close as soon as no command is running.
	retired atomic.Bool
	// vanished is set if the kernel has given the client up.
	vanished bool
}

func newSocket(nc net.Conn, config *tls.Config) socket {
	if config == nil {
		return socket{nc: nc, raw: rawConn(nc)}
	}
	server := tls.Server(nc, config)
	return socket{nc: server, tls: server}
}

// plainConn returns the connection below TLS.
func (s *socket) plainConn() net.Conn {
	if s.tls != nil {
		return s.tls.NetConn()
	}
	return s.nc
}

// retire has the connection end as soon as no command is running. Any goroutine may call it.
func (s *socket) retire() {
	s.deadline.Lock()
	defer s.deadline.Unlock()
	s.retired.Store(true)
	s.nc.SetReadDeadline(longAgo())
}

// setReadDeadline sets the read deadline, unless the connection is retired.
func (s *socket) setReadDeadline(t time.Time) {
	s.deadline.Lock()
	defer s.deadline.Unlock()
	if !s.retired.Load() {
		s.nc.SetReadDeadline(t)
	}
}

func longAgo() time.Time { return time.Unix(1, 0) }

// SetLease has the kernel give the client up when it has acknowledged no bytes and no probe for a session's lease, and
// not sooner, since the client may rely on its session until then.
func (s *socket) SetLease(lease time.Duration) {
	t, ok := s.plainConn().(*net.TCPConn)
	if !ok {
		return
	}
	probe := min(lease/4, maxProbe) // in whole seconds, rounded up
	t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: probe, Interval: probe, Count: 3})
	setUserTimeout(t, lease)
}

// maxProbe is the largest interval that all systems accept.
const maxProbe = 2 * time.Hour

// noteVanished records an error of the socket by which the kernel gave the client up.
func (s *socket) noteVanished(err error) {
	for _, errno := range []error{syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH} {
		s.vanished = s.vanished || errors.Is(err, errno)
	}
}

// halfClose closes the sending side, and discards for a moment what the client still sends. If a socket with unread
// bytes is closed, the client's kernel may drop the last reply.
func (s *socket) halfClose() {
	half, ok := s.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	s.nc.SetReadDeadline(time.Now().Add(halfCloseTime))
	io.CopyN(io.Discard, s.nc, halfCloseBytes)
}

const (
	halfCloseTime  = 100 * time.Millisecond
	halfCloseBytes = 1 << 20
)

// descriptor returns the descriptor of the socket, or -1 without a socket.
func (s *socket) descriptor() int {
	fd := -1
	if s.raw != nil {
		s.raw.Control(func(f uintptr) { fd = int(f) })
	}
	return fd
}
