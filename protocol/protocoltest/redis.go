package protocoltest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/fleet"
)

// StartRedis starts a redis-server, without a disk and with flags, until the test ends, and returns
// the path of the server's unix socket. The environment variable HOLDFAST_REDIS_SERVER is the path
// of the program. Without that variable the test is skipped.
func StartRedis(t testing.TB, flags ...string) (socket string) {
	t.Helper()
	dir := redisFolder(t)
	return startRedis(t, dir, append([]string{
		"--port", "0", "--unixsocket", filepath.Join(dir, "s"), "--save", "",
		"--dir", dir,
	}, flags...)...)
}

// StartSentinel is StartRedis for a redis-sentinel. config are lines of its configuration.
func StartSentinel(t testing.TB, config ...string) (socket string) {
	t.Helper()
	dir := redisFolder(t)
	config = append(config, "port "+FreePort(t), "unixsocket "+filepath.Join(dir, "s"), "dir "+dir, "")
	file := filepath.Join(dir, "sentinel.conf")
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(config, "\n")), 0o600))
	return startRedis(t, dir, file, "--sentinel")
}

// FreePort is a port of the loopback interface that nobody else gets.
func FreePort(t testing.TB) string {
	t.Helper()
	addrs, err := fleet.Reserve(1)
	require.NoError(t, err)
	_, port, _ := net.SplitHostPort(addrs[0])
	return port
}

// redisFolder is a folder of a redis-server, until the test ends. The paths of t.TempDir are too long for a
// socket.
func redisFolder(t testing.TB) string {
	t.Helper()
	if os.Getenv("HOLDFAST_REDIS_SERVER") == "" {
		t.Skip("set HOLDFAST_REDIS_SERVER to the path of a redis-server to compare with it")
	}
	dir, err := os.MkdirTemp("", "redis")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// startRedis starts a redis-server whose socket is named s, and waits for the socket.
func startRedis(t testing.TB, dir string, args ...string) (socket string) {
	t.Helper()
	p := &fleet.Process{Name: "redis-server", Log: filepath.Join(dir, "log")}
	require.NoError(t, p.Start(exec.Command(os.Getenv("HOLDFAST_REDIS_SERVER"), args...)))
	t.Cleanup(p.Kill)
	socket = filepath.Join(dir, "s")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, fleet.Await(ctx, func(context.Context) error {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}, p))
	return socket
}
