package frontend

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestKernelWatchesSessions shows that keepalive and TCP_USER_TIMEOUT follow the shortest lease of the connection's
// sessions. The kernel probes the client several times within the lease, and does not give it up before the lease ends.
func TestKernelWatchesSessions(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := startOn(t, Config{}, newCluster(), ln)
	nc, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	client := unread{t, nc}
	defer nc.Close()
	client.ask("+PONG\r\n", "PING")
	raw, err := s.clients()[0].plainConn().(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	options := func() (idle, interval, timeout int) {
		require.NoError(t, raw.Control(func(fd uintptr) {
			for option, value := range map[int]*int{
				unix.TCP_KEEPIDLE: &idle, unix.TCP_KEEPINTVL: &interval,
				unix.TCP_USER_TIMEOUT: &timeout,
			} {
				*value, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, option)
				require.NoError(t, err)
			}
		}))
		return idle, interval, timeout
	}
	for _, step := range []struct {
		lease, reply            string
		idle, interval, timeout int // seconds, seconds, milliseconds
	}{
		{"", "", 300, 100, 0},
		{"31000", ":1\r\n", 8, 8, 31_000},
		{"2000", ":2\r\n", 1, 1, 2000},
		{"60000", ":3\r\n", 1, 1, 2000}, // the shortest lease counts
	} {
		if step.lease != "" {
			client.ask(step.reply, "SESSION.OPEN", "PX", step.lease, "CONNECTION")
		}
		idle, interval, timeout := options()
		require.Equal(t, []int{step.idle, step.interval, step.timeout}, []int{idle, interval, timeout}, "lease %s",
			step.lease)
	}
}

// TestVanishedIsNoClose shows which errors of the socket mean that the kernel has given up an unreachable client. Other
// errors mean that the client has ended the connection.
func TestVanishedIsNoClose(t *testing.T) {
	for errno, vanished := range map[syscall.Errno]bool{
		syscall.ETIMEDOUT: true, syscall.EHOSTUNREACH: true, syscall.ENETUNREACH: true, syscall.ECONNRESET: false,
		syscall.EPIPE: false,
	} {
		var s socket
		s.noteVanished(&net.OpError{Op: "read", Err: os.NewSyscallError("read", errno)})
		s.noteVanished(errors.New("another"))
		s.noteVanished(nil)
		require.Equal(t, vanished, s.vanished, errno)
	}
}
