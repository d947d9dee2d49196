package frontend

import (
	"math"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout is how long sent bytes may be unacknowledged, or probes unanswered, whatever their number
// (RFC 5482, tcp(7)).
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
