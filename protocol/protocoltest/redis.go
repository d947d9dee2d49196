package protocoltest

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// StartRedis starts a redis-server, without a disk and with flags, until the test ends, and returns
// the path of the server's unix socket. The environment variable HOLDFAST_REDIS_SERVER is the path
// of the program. Without that variable the test is skipped.
func StartRedis(t testing.TB, flags ...string) (socket string) {
	t.Helper()
	path := os.Getenv("HOLDFAST_REDIS_SERVER")
	if path == "" {
		t.Skip("set HOLDFAST_REDIS_SERVER to the path of a redis-server to compare with it")
	}
	dir, err := os.MkdirTemp("", "redis") // t.TempDir's paths are too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	socket = filepath.Join(dir, "s")
	cmd := exec.Command(path, append([]string{"--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir}, flags...)...)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, 10*time.Second, 5*time.Millisecond)
	return socket
}
