package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// listenForNotices is the service manager's end: it returns the next notice of the process.
func listenForNotices(t *testing.T) (path string, next func() string) {
	dir, err := os.MkdirTemp("", "notify") // short: a socket's path has at most 108 bytes
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "socket")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return path, func() string {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
		b := make([]byte, 256)
		n, err := conn.Read(b)
		require.NoError(t, err)
		return string(b[:n])
	}
}

// TestServiceManagerIsTold: a unit of Type=notify starts and stops with the node. The node has
// executed itself by then (timerslack_linux.go), and nothing is told before its ports are open.
func TestServiceManagerIsTold(t *testing.T) {
	path, next := listenForNotices(t)
	t.Setenv("NOTIFY_SOCKET", path)
	addrs := freeAddrs(t, 2)
	n := &node{exe: build(t), addr: addrs[0], args: []string{
		"serve", "--addr", addrs[0], "--peer-addr", addrs[1],
		"--data-dir", t.TempDir(),
	}}
	n.start(t)
	defer n.kill()
	require.Equal(t, "READY=1", next())
	conn, err := net.Dial("tcp", addrs[0])
	require.NoError(t, err)
	_ = conn.Close()
	n.stop(t)
	require.Equal(t, "STOPPING=1", next())
	require.Zero(t, n.cmd.ProcessState.ExitCode())
}

func TestNotify(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	require.NoError(t, notify("READY=1"), "nobody listens")
	path, next := listenForNotices(t)
	t.Setenv("NOTIFY_SOCKET", path)
	require.NoError(t, notify("READY=1"))
	require.Equal(t, "READY=1", next())
	t.Setenv("NOTIFY_SOCKET", path+".gone")
	require.ErrorContains(t, notify("STOPPING=1"), "tell the service manager STOPPING=1")
}
