package frontend

import (
	"math"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout bounds the time for which sent bytes or probes, of any number, may be unacknowledged (RFC 5482,
// tcp(7)).
func setUserTimeout(t *net.TCPConn, limit time.Duration) {
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	millis := int(min(limit.Milliseconds(), math.MaxInt32))
	raw.Control(func(fd uintptr) {
		unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, millis)
	})
}
