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
	id      int64           // of the connection, for log lines
	nc      net.Conn        // any goroutine may use it
	tls     *tls.Conn       // nc, when the server speaks TLS
	raw     syscall.RawConn // of nc; nil when nc is not a plain socket
	writeBy time.Time       // the deadline that is set for writes
	// deadline guards the read deadline, which stays in the past once the connection is retired.
	deadline sync.Mutex
	// retired: close as soon as nothing is in flight. Set by any goroutine.
	retired atomic.Bool
	// vanished: the kernel gave the client up, as nothing was heard of it.
	vanished bool
}

func newSocket(nc net.Conn, config *tls.Config) socket {
	if config == nil {
		return socket{nc: nc, raw: rawConn(nc)}
	}
	server := tls.Server(nc, config)
	return socket{nc: server, tls: server}
}

// plainConn is the connection below TLS.
func (s *socket) plainConn() net.Conn {
	if s.tls != nil {
		return s.tls.NetConn()
	}
	return s.nc
}

// retire asks the connection to end when nothing is in flight. Any goroutine may call it.
func (s *socket) retire() {
	s.deadline.Lock()
	defer s.deadline.Unlock()
	s.retired.Store(true)
	s.nc.SetReadDeadline(longAgo())
}

// setReadDeadline sets the deadline of reads, unless the connection is retired.
func (s *socket) setReadDeadline(t time.Time) {
	s.deadline.Lock()
	defer s.deadline.Unlock()
	if !s.retired.Load() {
		s.nc.SetReadDeadline(t)
	}
}

func longAgo() time.Time { return time.Unix(1, 0) }

// SetLease has the kernel give the client up when it has acknowledged nothing for a session's lease, no bytes and no
// probe, and no sooner: until then the client may believe in its session.
func (s *socket) SetLease(lease time.Duration) {
	t, ok := s.plainConn().(*net.TCPConn)
	if !ok {
		return
	}
	probe := min(lease/4, longestProbe) // in whole seconds, rounded up
	t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: probe, Interval: probe, Count: 3})
	setUserTimeout(t, lease)
}

// longestProbe is within what systems take.
const longestProbe = 2 * time.Hour

// noteVanished notes an error of the socket that says that the client was given up.
func (s *socket) noteVanished(err error) {
	for _, gone := range []error{syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH} {
		s.vanished = s.vanished || errors.Is(err, gone)
	}
}

// halfClose closes the sending side, and discards for a moment what the client still sends. If a
// socket is closed with unread bytes, the client's kernel drops the last reply.
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

// descriptor is the socket's number, -1 for a connection without a socket.
func (s *socket) descriptor() int {
	fd := -1
	if s.raw != nil {
		s.raw.Control(func(f uintptr) { fd = int(f) })
	}
	return fd
}
