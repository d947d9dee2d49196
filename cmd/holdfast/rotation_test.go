package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// reload sends SIGHUP, and waits until the node has read its credentials again.
func (n *node) reload(t *testing.T) {
	t.Helper()
	const read = `msg="credentials read again"`
	before := strings.Count(n.stderr.String(), read)
	require.NoError(t, n.cmd.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool { return strings.Count(n.stderr.String(), read) > before }, 10*time.Second, 5*time.Millisecond, "%s", n.stderr)
}

// TestHangupReadsCredentialsAgain: SIGHUP does not end a node, and what is connected stays.
func TestHangupReadsCredentialsAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	give := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	give("one\n")
	n := launch(t, build(t), 1, "--password-file", file)[0]
	dial := func(password string) *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: n.addr, Password: password, MaxRetries: -1})
		t.Cleanup(func() { c.Close() })
		return c
	}
	connected := dial("one").Conn()
	defer connected.Close()
	require.Eventually(t, func() bool { return connected.Set(t.Context(), "k", "v", 0).Err() == nil }, 20*time.Second, 10*time.Millisecond)
	id := connected.ClientID(t.Context()).Val()
	give("two\n")
	n.reload(t)
	require.NoError(t, dial("two").Get(t.Context(), "k").Err())
	require.ErrorContains(t, dial("one").Get(t.Context(), "k").Err(), "WRONGPASS")
	require.Equal(t, id, connected.ClientID(t.Context()).Val(), "the connection was cut off")
	give("")
	require.NoError(t, n.cmd.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool { return strings.Contains(n.stderr.String(), "credentials not taken") }, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, dial("two").Get(t.Context(), "k").Err())
	n.stop(t)
	require.Equal(t, 0, n.cmd.ProcessState.ExitCode())
}
