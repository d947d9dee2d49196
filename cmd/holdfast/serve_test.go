package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server"
)

// try runs the program in this process until it fails; what serves is stopped at once.
func try(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var out, errs bytes.Buffer
	status = run(ctx, args, &out, &errs)
	return status, out.String(), errs.String()
}

func TestBadUsageIsOneLineAndStatusTwo(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"serve", "--nonsense"}, "flag provided but not defined: -nonsense"},
		{[]string{"serve", "--max-clients", "many"}, `invalid value "many" for flag -max-clients: invalid syntax`},
		{[]string{"serve", "--max-clients", "0"}, "max-clients 0: at least 1"},
		{[]string{"serve", "leftover"}, `unexpected argument "leftover"`},
		{[]string{"serve", "--name", "a b"}, `name "a b": use 1 to 64 letters`},
		{[]string{"serve", "--log-store", "tape"}, `log-store "tape": use wal or bolt`},
		{[]string{"serve", "--log-level", "loud"}, `log-level "loud"`},
		{[]string{"serve", "--initial-cluster", "n1"}, `"n1" is not name=host:port`},
		{[]string{"serve", "--initial-cluster", "n2=127.0.0.1:1"}, `initial-cluster does not name this node, "n1"`},
		{[]string{"serve", "--initial-cluster", "n1=127.0.0.1:1,n2=127.0.0.1:2"}, "use 1, 3 or 5"},
		{[]string{"serve", "--initial-cluster", "n1=127.0.0.1:1,n1=127.0.0.1:2,n3=127.0.0.1:3"}, "names n1 twice"},
		{[]string{"serve", "--addr", "0.0.0.0:6379"}, "addr 0.0.0.0:6379 is not loopback"},
		{[]string{"serve", "--peer-addr", ":7379"}, "peer-addr :7379 is not loopback"},
		{[]string{"serve", "--debug-peer-dial", "a=b"}, "debug-peer-dial needs debug"},
		{[]string{"demo", "--port", "70000"}, "port 70000: use 1 to"},
		{[]string{"docs"}, "say 'flags' or 'commands'"},
		{[]string{"dance"}, `unknown command "dance"`},
	} {
		status, stdout, stderr := try(t, tc.args...)
		require.Equal(t, 2, status, "%v: %s", tc.args, stderr)
		require.Empty(t, stdout)
		require.Contains(t, stderr, tc.want)
		if tc.args[0] != "dance" { // which adds the usage
			require.Equal(t, 1, strings.Count(stderr, "\n"), "%v: %s", tc.args, stderr)
		}
	}
}

func TestBadEnvironmentIsNamed(t *testing.T) {
	t.Setenv("HOLDFAST_MAX_CLIENTS", "few")
	status, _, stderr := try(t, "serve")
	require.Equal(t, 2, status)
	require.Contains(t, stderr, `HOLDFAST_MAX_CLIENTS="few"`)
}

func TestEnvironmentIsBelowFlags(t *testing.T) {
	t.Setenv("HOLDFAST_NAME", "from-env")
	t.Setenv("HOLDFAST_ADDR", "127.0.0.1:1")
	c, err := parseConfig("serve", []string{"--addr", "127.0.0.1:2"}, nil, nil)
	require.NoError(t, err)
	require.Equal(t, "from-env", c.Node.Name)
	require.Equal(t, "127.0.0.1:2", c.Listen.Addr)
}

func TestPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for _, flag := range []string{"--addr", "--peer-addr"} {
		other := freeAddrs(t, 1)[0]
		args := []string{"serve", "--data-dir", t.TempDir(), "--addr", other, "--peer-addr", "127.0.0.1:0"}
		args = append(args, flag, taken.Addr().String())
		status, _, stderr := try(t, args...)
		require.Equal(t, 1, status)
		require.Contains(t, stderr, "address already in use")
		require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	}
}

// serveFor runs a node on dir for a moment and returns how it ended.
func serveFor(t *testing.T, dir string, args ...string) (status int, stderr string) {
	t.Helper()
	addrs := freeAddrs(t, 2)
	args = append([]string{"serve", "--data-dir", dir, "--addr", addrs[0], "--peer-addr", addrs[1], "--initial-cluster", "n1=127.0.0.1:1"}, args...)
	status, _, stderr = try(t, args...)
	return status, stderr
}

func TestFolderOfAnotherNodeIsRefused(t *testing.T) {
	dir := t.TempDir()
	status, stderr := serveFor(t, dir)
	require.Equal(t, 0, status, stderr)

	status, stderr = serveFor(t, dir, "--name", "n2", "--initial-cluster", "n2=127.0.0.1:1")
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "n1")
	status, stderr = serveFor(t, dir, "--initial-cluster", "n1=127.0.0.1:1,n2=127.0.0.1:2,n3=127.0.0.1:3")
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "cluster")
	status, stderr = serveFor(t, dir)
	require.Equal(t, 0, status, stderr)
}

func TestLockedFolderIsRefused(t *testing.T) {
	dir := t.TempDir()
	c := server.DefaultConfig()
	c.Node.DataDir, c.Listen.Addr, c.Listen.PeerAddr = dir, "127.0.0.1:0", "127.0.0.1:0"
	logger, err := newLogger(c.Log, &bytes.Buffer{})
	require.NoError(t, err)
	s, err := server.New(c, logger)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	status, stderr := serveFor(t, dir, "--initial-cluster", "")
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "another process")
	cancel()
	require.NoError(t, <-done)
}

func TestSecretFiles(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	status, stderr := serveFor(t, t.TempDir(), "--password-file", empty)
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "is empty")
	status, stderr = serveFor(t, t.TempDir(), "--password-file", empty, "--password", "x")
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "not both")
}
