package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// reload sends SIGHUP, and waits until the node has read its credentials again.
func (n *node) reload(t *testing.T) {
	t.Helper()
	const read = `msg="credentials read again"`
	before := strings.Count(n.Output(), read)
	require.NoError(t, n.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool { return strings.Count(n.Output(), read) > before }, 10*time.Second,
		5*time.Millisecond, "%s", n.Output())
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
	require.Eventually(t, func() bool { return connected.Set(t.Context(), "k", "v", 0).Err() == nil }, 20*time.Second,
		10*time.Millisecond)
	id := connected.ClientID(t.Context()).Val()
	give("two\n")
	n.reload(t)
	require.NoError(t, dial("two").Get(t.Context(), "k").Err())
	require.ErrorContains(t, dial("one").Get(t.Context(), "k").Err(), "WRONGPASS")
	require.Equal(t, id, connected.ClientID(t.Context()).Val(), "the connection was cut off")
	give("")
	require.NoError(t, n.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool { return strings.Contains(n.Output(), "credentials not taken") },
		10*time.Second, 5*time.Millisecond)
	require.NoError(t, dial("two").Get(t.Context(), "k").Err())
	n.stop(t)
	require.Equal(t, 0, n.ExitCode())
}

// pair is a new certificate of a, with its key.
func (a *authority) pair(t *testing.T, name string) (cert, key string) {
	t.Helper()
	a.issue(t, name)
	return a.text(t, name+".crt"), a.text(t, name+".key")
}

func (a *authority) text(t *testing.T, file string) string {
	t.Helper()
	return protocoltest.ReadFile(t, a.file(file))
}

// TestSecretOfOneNode: a secret that was changed on one node alone is known at once, on all nodes, while all
// connections stay; and that it fits again.
func TestSecretOfOneNode(t *testing.T) {
	t.Parallel()
	exe, secrets := build(t), t.TempDir()
	give := func(node, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(secrets, node), []byte(text), 0o600))
	}
	nodes := plan(t, exe, 3, "--cluster-secret-file", filepath.Join(secrets, "{node}"), "--http-addr", "127.0.0.1:0")
	for _, n := range nodes {
		give(n.name, "one\n")
		n.start(t)
	}
	status := func(n *node) (string, int) {
		cmd := exec.Command(exe, "cluster", "status", "--server", n.addr)
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	become := func(want int) {
		t.Helper()
		for _, n := range nodes {
			require.Eventually(t, func() bool { _, got := status(n); return got == want }, 60*time.Second, 100*time.Millisecond,
				"%s", n.Output())
		}
	}
	become(0)
	give("n3", "another\n")
	nodes[2].reload(t)
	become(3)
	for _, n := range nodes {
		out, _ := status(n)
		require.Regexp(t, `3 of 3 voters answer, 1 may fail\.\nNot well: n[12] and n3 do not admit each other: .*secret`, out)
	}
	require.Contains(t, nodes[2].Output(), "this node and another member do not admit each other")
	give("n3", "one\n")
	nodes[2].reload(t)
	become(0)
}
