package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// tool runs a command of the program to its end.
func tool(t *testing.T, exe string, words ...string) string {
	t.Helper()
	out, err := exec.Command(exe, words...).CombinedOutput()
	require.NoError(t, err, "%v: %s", words, out)
	return string(out)
}

// restarted is another set of processes: the same nodes, with other folders.
func restarted(t *testing.T, nodes []*node, dir string) {
	t.Helper()
	for _, n := range nodes {
		n.set("--data-dir", "--data-dir", filepath.Join(dir, n.name))
		n.start(t)
	}
	for _, n := range nodes {
		waitServing(t, n)
	}
}

// set puts a flag in the place of another.
func (n *node) set(old, name, value string) {
	for i, word := range n.args {
		if word == old {
			n.args[i], n.args[i+1] = name, value
		}
	}
}

// setting is the value of a node's flag.
func (n *node) setting(name string) string {
	for i, word := range n.args {
		if word == name {
			return n.args[i+1]
		}
	}
	return ""
}

// TestRestoreDrill takes a backup under load from a follower, loses all nodes, and restores. Every lock that was
// acknowledged before the backup was begun is there, no lease is shorter, and fences only grow.
func TestRestoreDrill(t *testing.T) {
	exe := build(t)
	nodes := startNodes(t, exe, 3)
	var clients []*redis.Client
	for _, n := range nodes {
		clients = append(clients, client(t, n))
	}
	a := &acknowledged{locks: map[string]string{}, fence: map[int64]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() { a.lockUntil(ctx, w, clients) })
	}
	enough := func(n int) func() bool {
		return func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return len(a.locks) >= n
		}
	}
	require.Eventually(t, enough(100), 30*time.Second, time.Millisecond)
	native := int64(0)
	for range 3 {
		v, err := ask(ctx, nodes[0].addr, "LOCK.ACQUIRE", "native", "me", "PX", "60000")
		require.NoError(t, err)
		native = v.Num
	}
	require.NoError(t, clients[0].Set(ctx, "short", "x", 5*time.Second).Err())

	follower := nodes[0]
	if leaderOf(t, nodes) == follower {
		follower = nodes[1]
	}
	file := filepath.Join(t.TempDir(), "backup")
	a.mu.Lock()
	before := maps.Clone(a.locks)
	a.mu.Unlock()
	tool(t, exe, "backup", "--server", follower.addr, file)
	require.Eventually(t, enough(len(before)+20), 30*time.Second, time.Millisecond, "the load goes on")
	cancel()
	workers.Wait()
	largest := int64(0)
	for fence := range a.fence {
		largest = max(largest, fence)
	}
	for _, n := range nodes {
		n.kill()
	}
	require.Contains(t, tool(t, exe, "inspect", file), "fence (database 0)")

	dir := t.TempDir()
	said := tool(t, exe, "restore", file, "--data-dir", filepath.Join(dir, "n1"), "--name", "n1",
		"--initial-cluster", nodes[0].setting("--initial-cluster"), "--raise", "fence")
	require.Contains(t, said, "1 keys that match fence")
	restarted(t, nodes, dir)
	for _, n := range nodes {
		c := client(t, n)
		var keys []string
		for key := range before {
			keys = append(keys, key)
		}
		values, err := c.MGet(t.Context(), keys...).Result()
		require.NoError(t, err)
		for i, key := range keys {
			require.Equal(t, before[key], values[i], "%s through %s", key, n.name)
		}
		fence, err := c.Incr(t.Context(), "fence").Result()
		require.NoError(t, err)
		require.Greater(t, fence, largest)
		largest = fence
		v, err := ask(t.Context(), n.addr, "LOCK.ACQUIRE", "of "+n.name, "me", "PX", "60000")
		require.NoError(t, err)
		require.Greater(t, v.Num, native)
		native = v.Num
		left, err := c.PTTL(t.Context(), "short").Result()
		require.NoError(t, err)
		require.Greater(t, left, 5*time.Second, "the lease begins anew")
	}
}

// TestSurvivorGoesOn loses two of three nodes for good. The third is recovered with all acknowledged writes that it had
// heard of, another node joins it, and a former member that comes back does not.
func TestSurvivorGoesOn(t *testing.T) {
	exe := build(t)
	nodes := startNodes(t, exe, 3)
	c := client(t, nodes[0])
	for i := range 50 {
		require.NoError(t, c.Set(t.Context(), fmt.Sprint("k", i), "v", 0).Err())
	}
	require.NoError(t, c.Do(t.Context(), "WAIT", "2", "0").Err())
	for _, n := range nodes {
		n.kill()
	}
	survivor := nodes[1]
	folder := survivor.setting("--data-dir")
	require.Contains(t, tool(t, exe, "recover", "--data-dir", folder), "members gone   n1 at ")
	require.Contains(t, tool(t, exe, "recover", "--data-dir", folder, "--yes"), "is the only member of cluster")
	survivor.start(t)
	nodes[0].start(t) // with its old folder
	waitServing(t, survivor)
	require.NoError(t, os.RemoveAll(nodes[2].setting("--data-dir")))
	nodes[2].set("--initial-cluster", "--join", survivor.setting("--peer-addr"))
	nodes[2].start(t)
	waitServing(t, nodes[2])
	for _, n := range nodes[1:] {
		v, err := ask(t.Context(), n.addr, "DBSIZE")
		require.NoError(t, err)
		require.Equal(t, int64(50), v.Num, n.name)
	}
	v, err := ask(t.Context(), survivor.addr, "RAFT.MEMBERS")
	require.NoError(t, err)
	require.Len(t, v.Elems, 2)
	v, err = ask(t.Context(), nodes[0].addr, "SET", "k", "v")
	require.True(t, err != nil || strings.HasPrefix(v.Str, "CLUSTERDOWN"), "%v %v", v, err)
}

// TestKilledBackupAndRestore leave no file that passes for a backup, and no folder that passes for a node's.
func TestKilledBackupAndRestore(t *testing.T) {
	exe := build(t)
	n := startNodes(t, exe, 1)[0]
	c := client(t, n)
	for i := range 64 {
		require.NoError(t, c.Set(t.Context(), fmt.Sprint("k", i), strings.Repeat("x", 256<<10), 0).Err())
	}
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	tool(t, exe, "backup", "--server", n.addr, whole)

	killed := filepath.Join(dir, "killed")
	cmd := exec.Command(exe, "backup", "--server", n.addr, killed)
	require.NoError(t, cmd.Start())
	partial := func() []string {
		found, err := filepath.Glob(killed + ".partial-*")
		require.NoError(t, err)
		return found
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	for len(partial()) == 0 {
		select {
		case <-done:
			t.Skip("the backup was quicker than the kill")
		default:
		}
	}
	require.NoError(t, cmd.Process.Kill())
	<-done
	if left := partial(); len(left) > 0 {
		require.NoFileExists(t, killed)
		out, err := exec.Command(exe, "inspect", left[0]).CombinedOutput()
		require.True(t, err != nil || strings.Contains(string(out), "right: "), "%s", out)
	}

	folder := filepath.Join(dir, "data")
	for range 20 {
		_ = os.RemoveAll(folder)
		cmd := exec.Command(exe, "restore", whole, "--data-dir", folder)
		require.NoError(t, cmd.Start())
		for {
			text, err := os.ReadFile(filepath.Join(folder, "identity.json"))
			if err == nil && strings.Contains(string(text), `"filling"`) || strings.Contains(string(text), `"ready"`) {
				break
			}
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		text, err := os.ReadFile(filepath.Join(folder, "identity.json"))
		require.NoError(t, err)
		if !strings.Contains(string(text), `"filling"`) {
			continue // it was quicker
		}
		out, err := exec.Command(exe, "serve", "--data-dir", folder, "--addr", "127.0.0.1:0", "--peer-addr", "127.0.0.1:0").CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), "is not whole")
		break
	}
	if text, _ := os.ReadFile(filepath.Join(folder, "identity.json")); strings.Contains(string(text), `"filling"`) {
		tool(t, exe, "restore", whole, "--data-dir", folder)
	}
}
