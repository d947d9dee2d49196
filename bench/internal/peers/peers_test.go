package peers

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/bench/internal/fakeredis"
	"github.com/holdfast/holdfast/bench/internal/resp"
	"github.com/holdfast/holdfast/protocol/fleet"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// fakeAddr is the environment variable with the address at which the test binary acts as a server.
const fakeAddr = "BENCH_FAKE_ADDR"

func TestMain(m *testing.M) {
	if addr := os.Getenv(fakeAddr); addr != "" {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			fmt.Println("cannot listen:", err)
			os.Exit(1)
		}
		s := fakeredis.New(l)
		s.Role = os.Getenv("BENCH_FAKE_ROLE")
		s.Serve(l)
	}
	os.Exit(m.Run())
}

func fakeCommand(addr, role string) func(string) ([]string, error) {
	return func(string) ([]string, error) {
		exe, err := os.Executable()
		return []string{"/usr/bin/env", fakeAddr + "=" + addr, "BENCH_FAKE_ROLE=" + role, exe}, err
	}
}

func startFakes(t *testing.T, roles ...string) *Cluster {
	t.Helper()
	c := &Cluster{dir: t.TempDir()}
	t.Cleanup(c.stop)
	addrs, err := fleet.Reserve(len(roles))
	require.NoError(t, err)
	for i, role := range roles {
		require.NoError(t, c.add(fmt.Sprintf("fake%d", i), addrs[i], fakeCommand(addrs[i], role)))
	}
	return c
}

func TestClusterIsKilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	c := startFakes(t, "master")
	addr := c.addrs()[0]
	require.NoError(t, c.Ready(t.Context()))
	before := c.pids()
	require.NoError(t, c.Kill(addr))
	_, err := resp.Ask(t.Context(), addr, time.Second, "PING")
	require.Error(t, err)
	require.NoError(t, c.Kill(addr), "twice is once")
	require.NoError(t, c.Start(t.Context(), addr))
	require.NoError(t, c.Ready(t.Context()))
	require.NotEqual(t, before, c.pids())
	require.ErrorContains(t, c.Kill("nowhere:1"), "no server listens at nowhere:1")
	require.ErrorContains(t, c.Start(t.Context(), "nowhere:1"), "no server listens at nowhere:1")
}

func TestClusterIsFrozen(t *testing.T) {
	t.Parallel()
	c := startFakes(t, "master")
	addr := c.addrs()[0]
	require.NoError(t, c.Ready(t.Context()))
	require.NoError(t, c.Freeze(addr))
	_, err := resp.Ask(t.Context(), addr, 50*time.Millisecond, "PING")
	require.ErrorContains(t, err, "timeout", "it is there, and does not answer")
	require.NoError(t, c.Thaw(addr))
	require.NoError(t, c.Ready(t.Context()))
	require.NoError(t, c.Freeze(addr))
	require.NoError(t, c.Kill(addr), "a frozen server can be killed")
	require.ErrorContains(t, c.Freeze("nowhere:1"), "no server listens at nowhere:1")
}

func TestReadyNeedsOneMaster(t *testing.T) {
	t.Parallel()
	two := startFakes(t, "master", "master")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	two.independent = true
	require.NoError(t, two.Ready(ctx))
	two.independent = false
	require.EqualError(t, two.ready(ctx), "there are 2 masters")

	follower := startFakes(t, "slave")
	require.Eventually(t, func() bool {
		err := follower.ready(ctx)
		return err != nil && err.Error() == follower.addrs()[0]+" does not follow yet"
	}, 5*time.Second, 10*time.Millisecond)
}

func TestServerThatEndsIsAnError(t *testing.T) {
	t.Parallel()
	c := &Cluster{dir: t.TempDir()}
	require.NoError(t, c.add("broken", "127.0.0.1:1", func(string) ([]string, error) {
		return []string{"sh", "-c", "echo no such luck; exit 1"}, nil
	}))
	require.ErrorContains(t, c.Ready(t.Context()), "broken did not start: exit status 1\nno such luck")
	require.Contains(t, c.logTails(), "no such luck")
	c.stop()
}

func TestRowsHaveNames(t *testing.T) {
	t.Parallel()
	names := Names()
	slices.Sort(names)
	require.Equal(t, names, slices.Compact(slices.Clone(names)))
	_, err := Start(t.Context(), []string{"nobody"}, Options{Dir: t.TempDir()})
	require.ErrorContains(t, err, `there is no peer "nobody"`)
}

// A peer that cannot be started leaves nothing behind, and the others run.
func TestPeerThatDoesNotStartIsSkipped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	require.NoError(t, os.WriteFile(broken, []byte("#!/bin/sh\necho no such luck\nexit 1\n"), 0o755))
	p, err := Start(t.Context(), []string{"holdfast", "holdfast-followers"}, Options{Dir: dir, Holdfast: broken})
	require.NoError(t, err)
	require.Empty(t, p.Subjects)
	require.Len(t, p.Skipped, 2)
	require.ErrorContains(t, p.Skipped[0], "holdfast cannot be started: n")
	require.ErrorContains(t, p.Skipped[0], "no such luck")
	require.NoError(t, p.Stop())

	// holdfast-before never takes the binary of this tree.
	p, err = Start(t.Context(), []string{"holdfast-before"}, Options{Dir: dir, Holdfast: broken})
	require.NoError(t, err)
	require.EqualError(t, p.Skipped[0], "holdfast-before cannot be started: --before names no binary")
	require.NoError(t, p.Stop())
	p, err = Start(t.Context(), []string{"holdfast-before"}, Options{Dir: dir, Holdfast: "/nonexistent", Before: broken})
	require.NoError(t, err)
	require.ErrorContains(t, p.Skipped[0], "no such luck")
	require.NoError(t, p.Stop())
}

func TestRedisPeers(t *testing.T) {
	if os.Getenv("HOLDFAST_REDIS_SERVER") == "" {
		t.Skip("set HOLDFAST_REDIS_SERVER, and have redis-server in the PATH, to start Redis in all its ways")
	}
	dir := t.TempDir()
	p, err := Start(t.Context(), []string{"redis", "redis-always", "redis-wait", "redlock", "redis-sentinel"},
		Options{Dir: dir})
	require.NoError(t, err)
	require.Len(t, p.Subjects, 5)
	for _, s := range p.Subjects {
		if s.Target.Via == "redlock" {
			require.Len(t, s.Target.Addrs, 3)
			continue
		}
		leader, err := s.Target.Leader(t.Context())
		require.NoError(t, err)
		require.Contains(t, s.Target.Addrs, leader)
		fsync, err := resp.Ask(t.Context(), leader, time.Second, "CONFIG", "GET", "appendfsync")
		require.NoError(t, err)
		if s.Target.Name != "redis" {
			require.Equal(t, "always", fsync.Elems[1].Str)
		}
		require.Equal(t, s.Target.Name == "redis-sentinel", s.Failover)
	}
	require.NoError(t, p.Stop())
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// Each language's driver has the libraries of its rows.
func TestLibraries(t *testing.T) {
	t.Parallel()
	drivers := map[string]string{"go": "main.go", "python": "bench.py", "java": "Bench.java", "typescript": "bench.mjs"}
	for _, row := range Rows() {
		if row.Language == "" {
			continue
		}
		require.NotEmpty(t, drivers[row.Language], row.Name)
		source := protocoltest.ReadFile(t, filepath.Join("..", "..", "libraries", drivers[row.Language]))
		name := row.Name
		if row.Language == "python" {
			name = strings.TrimPrefix(name, "python-")
		}
		require.Regexp(t, "[\"']"+name+"[\"']", source)
	}
}
