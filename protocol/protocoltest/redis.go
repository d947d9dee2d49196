package protocoltest

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
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

// Redis is a connection to a server of [StartRedis], which hands on the bytes of replies.
type Redis struct {
	T    testing.TB // may be set anew
	conn net.Conn
	in   *bufio.Reader
}

// DialRedis connects to the socket of a server.
func DialRedis(t testing.TB, socket string) *Redis {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &Redis{T: t, conn: conn, in: bufio.NewReader(conn)}
}

// Do sends a command line and returns the bytes of the reply.
func (r *Redis) Do(words ...string) string {
	r.T.Helper()
	_, err := r.conn.Write(protocol.AppendCommand(nil, words...))
	require.NoError(r.T, err)
	return r.Reply()
}

// Reply returns the bytes of the next reply or push.
func (r *Redis) Reply() string {
	r.T.Helper()
	head, err := r.in.ReadString('\n')
	require.NoError(r.T, err)
	n, _ := strconv.Atoi(strings.TrimSpace(head[1:]))
	switch head[0] {
	case '$', '=':
		if n < 0 {
			return head
		}
		body := make([]byte, n+2)
		_, err := io.ReadFull(r.in, body)
		require.NoError(r.T, err)
		return head + string(body)
	case '*', '~', '>', '%':
		if head[0] == '%' {
			n *= 2
		}
		var b strings.Builder
		b.WriteString(head)
		for range n {
			b.WriteString(r.Reply())
		}
		return b.String()
	}
	return head
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
