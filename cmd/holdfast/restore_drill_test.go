package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/api"
)

// tool runs a command of the program to its end.
func tool(t *testing.T, exe string, words ...string) string {
	t.Helper()
	out, err := exec.Command(exe, words...).CombinedOutput()
	require.NoError(t, err, "%v: %s", words, out)
	return string(out)
}

// TestRestoredTogether: nodes that are restored from one file with the same --at found one cluster. Native locks keep
// their holders. A second restore of the file gives larger fences than the first.
func TestRestoredTogether(t *testing.T) {
	exe := build(t)
	source := startNodes(t, exe, 1)[0]
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, client(t, source).Do(t.Context(), "LOCK.ACQUIRE", "job", "me", "PX", "600000").Err())
	var doc backupDocument
	out := tool(t, exe, "backup", "--json", "--server", source.addr, file)
	require.NoError(t, json.Unmarshal([]byte(out), &doc), out)
	require.Equal(t, []any{api.Format, file}, []any{doc.Format, doc.File})
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, info.Size(), doc.Bytes)
	source.Kill()
	var largest int64
	for range 2 {
		nodes := plan(t, exe, 3)
		restore := func(n *node, more ...string) string {
			return tool(t, exe, append([]string{
				"restore", file, "--data-dir", *n.flag("data-dir"), "--name", n.name, "--initial-cluster",
				*n.flag("initial-cluster"),
			}, more...)...)
		}
		at := regexp.MustCompile(`--at (\S+)`).FindStringSubmatch(restore(nodes[0]))
		restore(nodes[1], "--at", at[1])
		restore(nodes[2], "--at", at[1])
		for _, n := range nodes {
			n.start(t)
		}
		for _, n := range nodes {
			waitServing(t, n)
			n.logs(t, `command=restore`)
		}
		c := client(t, nodes[1])
		require.ErrorIs(t, c.Do(t.Context(), "LOCK.ACQUIRE", "job", "other", "PX", "1000").Err(), redis.Nil, "two holders")
		for range 3 {
			fence, err := c.Do(t.Context(), "LOCK.ACQUIRE", fmt.Sprint("k", largest), "me", "PX", "600000").Int64()
			require.NoError(t, err)
			require.Greater(t, fence, largest)
			largest = fence
		}
		for _, n := range nodes {
			n.Kill()
		}
	}
}

// TestRestoredFromTwoFiles: nodes that were restored from different files found nothing, and say why. When one of them
// is emptied, the other, which is the only one that was restored then, takes in all nodes.
func TestRestoredFromTwoFiles(t *testing.T) {
	exe := build(t)
	source := startNodes(t, exe, 1)[0]
	files := []string{filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")}
	for _, file := range files {
		require.NoError(t, client(t, source).Incr(t.Context(), "n").Err())
		tool(t, exe, "backup", "--server", source.addr, file)
	}
	source.Kill()
	nodes := plan(t, exe, 3)
	for i, file := range files {
		said := tool(t, exe, "restore", file, "--data-dir", *nodes[i].flag("data-dir"), "--name", nodes[i].name,
			"--initial-cluster", *nodes[i].flag("initial-cluster"))
		require.Contains(t, said, "of a cluster that is founded when all nodes of --initial-cluster run")
	}
	for _, n := range nodes {
		n.start(t)
	}
	nodes[0].logs(t, "n2 was restored from another backup than this node, or with other flags")
	nodes[1].logs(t, "n1 was restored from another backup than this node, or with other flags")
	nodes[0].Kill()
	require.NoError(t, os.RemoveAll(*nodes[0].flag("data-dir")))
	nodes[0].start(t)
	for _, n := range nodes {
		waitServing(t, n)
		v, err := client(t, n).Get(t.Context(), "n").Result()
		require.NoError(t, err)
		require.Equal(t, "2", v, n.name)
	}
	nodes[1].logs(t, `msg="cluster begun with the state of another" node=n2 command=restore`)
}

// quarantine marks the folder of a node that does not run, as if the node's state differed from the others'.
func (n *node) quarantine(t *testing.T) {
	t.Helper()
	file := filepath.Join(*n.flag("data-dir"), "identity.json")
	id := map[string]any{}
	require.NoError(t, json.Unmarshal([]byte(protocoltest.ReadFile(t, file)), &id))
	id["quarantine"] = map[string]any{"cluster": id["clusterID"], "index": 7, "at": "2026-01-02T03:04:05Z"}
	text, err := json.Marshal(id)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, text, 0o600))
}

// TestSurvivorGoesOn loses two of three nodes for good. The third, which is in quarantine, is recovered with all
// acknowledged writes that it had heard of, another node joins it, and a former member that comes back does not.
func TestSurvivorGoesOn(t *testing.T) {
	t.Parallel()
	exe := build(t)
	nodes := startNodes(t, exe, 3)
	c := client(t, nodes[0])
	for i := range 50 {
		require.NoError(t, c.Set(t.Context(), fmt.Sprint("k", i), "v", 0).Err())
	}
	require.NoError(t, c.Do(t.Context(), "WAIT", "2", "0").Err())
	for _, n := range nodes {
		n.Kill()
	}
	survivor := nodes[1]
	folder := *survivor.flag("data-dir")
	said := tool(t, exe, "recover", "--data-dir", folder)
	require.Contains(t, said, "members gone   n1 at ")
	require.NotContains(t, said, "quarantine")
	survivor.quarantine(t)
	require.Contains(t, tool(t, exe, "recover", "--data-dir", folder),
		"quarantine     its state differed from the other members' at index 7")
	require.Contains(t, tool(t, exe, "recover", "--data-dir", folder, "--yes"), "is the only member of cluster")
	survivor.start(t)
	nodes[0].start(t) // with its old folder
	waitServing(t, survivor)
	require.NoError(t, os.RemoveAll(*nodes[2].flag("data-dir")))
	nodes[2].drop("initial-cluster")
	nodes[2].args = append(nodes[2].args, "--join", *survivor.flag("peer-addr"))
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
		text := protocoltest.ReadFile(t, filepath.Join(folder, "identity.json"))
		if !strings.Contains(text, `"filling"`) {
			continue // it was quicker
		}
		out, err := exec.Command(exe, "serve", "--data-dir", folder, "--addr", "127.0.0.1:0", "--peer-addr",
			"127.0.0.1:0").CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), "is not whole")
		break
	}
	if strings.Contains(protocoltest.ReadFile(t, filepath.Join(folder, "identity.json")), `"filling"`) {
		tool(t, exe, "restore", whole, "--data-dir", folder)
	}
}
