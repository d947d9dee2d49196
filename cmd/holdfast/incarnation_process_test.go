//go:build unix

package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// copied copies a node's data folder.
func copied(t *testing.T, n *node) (dir string) {
	t.Helper()
	dir = *n.flag("data-dir") + "-copy"
	require.NoError(t, os.CopyFS(dir, os.DirFS(*n.flag("data-dir"))))
	return dir
}

const superseded = "this node's data folder is not what it was, and cannot be used again"

// TestFolderPutBack: an older copy of a node's folder does not serve, however often it is started.
func TestFolderPutBack(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, build(t), 3)
	leader, follower, _ := parts(t, nodes)
	follower.stop(t)
	old := copied(t, follower)
	follower.start(t)
	waitServing(t, follower)
	for range 10 {
		require.NoError(t, client(t, follower).Incr(t.Context(), "fence").Err())
	}
	follower.kill()
	require.NoError(t, os.RemoveAll(*follower.flag("data-dir")))
	require.NoError(t, os.Rename(old, *follower.flag("data-dir")))
	for range 4 {
		follower.start(t)
		follower.fails(t, statusSuperseded, superseded)
	}
	n4 := newcomer(t, "n4", nodes, "--non-voter")
	n4.logs(t, "msg=joined")
	all(t, []*node{leader}, "n4", "no")
	changes(t, leader.addr, 0, follower.name+" was removed", "replace", follower.name, "n4")
	require.Equal(t, int64(11), client(t, n4).Incr(t.Context(), "fence").Val())
}

// TestFolderCopied: of two processes of one identity the later goes on if it descends from the other, and else the
// other.
func TestFolderCopied(t *testing.T) {
	nodes := startNodes(t, build(t), 3)
	leader, follower, _ := parts(t, nodes)
	follower.stop(t)
	stopped := copied(t, follower)
	follower.start(t)
	waitServing(t, follower)

	addrs := freeAddrs(t, 2)
	clone := &node{name: follower.name, addr: addrs[0], exe: follower.exe, args: slices.Clone(follower.args)}
	*clone.flag("initial-cluster") = strings.Replace(*clone.flag("initial-cluster"), *clone.flag("peer-addr"), addrs[1], 1)
	*clone.flag("addr"), *clone.flag("peer-addr"), *clone.flag("data-dir") = addrs[0], addrs[1], stopped
	clone.start(t)
	t.Cleanup(clone.kill)
	clone.fails(t, statusSuperseded, superseded)
	waitServing(t, follower)

	require.NoError(t, os.RemoveAll(stopped))
	*clone.flag("data-dir") = copied(t, follower)
	clone.start(t)
	follower.fails(t, statusSuperseded, superseded)
	waitServing(t, clone)
	require.NoError(t, client(t, clone).Set(t.Context(), "k", "v", 0).Err())
	all(t, []*node{leader, clone}, follower.name, "yes")
	changes(t, leader.addr, 0, "3 of 3 voters answer", "status")
}

// rotSnapshot changes a bit of the state in a node's newest snapshot, and returns its file.
func rotSnapshot(t *testing.T, n *node) (file string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(*n.flag("data-dir"), "snapshots", "*.snap"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file = range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		b[len(b)-21] ^= 4 // behind the state there are 20 bytes
		require.NoError(t, os.WriteFile(file, b, 0o600))
	}
	return file
}

// TestDamagedSnapshotAtAStart: a node whose newest snapshot is damaged waits for the state of another member, says so,
// and comes back with what it had acknowledged. A node that knows no other member ends.
func TestDamagedSnapshotAtAStart(t *testing.T) {
	t.Parallel()
	exe, monitoring := build(t), freeAddrs(t, 1)[0]
	small := []string{"--debug", "--trailing-logs", "5", "--snapshot-threshold", "1000000"}
	nodes := startNodes(t, exe, 3, small...)
	for i := range 50 {
		require.NoError(t, client(t, nodes[0]).Set(t.Context(), fmt.Sprint("k", i), "v", 0).Err())
	}
	for _, n := range nodes {
		waitServing(t, n)
		require.NoError(t, client(t, n).Do(t.Context(), "DEBUG", "SNAPSHOT").Err())
	}
	require.NoError(t, client(t, nodes[0]).Set(t.Context(), "last", "v", 0).Err())
	for _, n := range nodes {
		n.kill()
	}
	one, two := nodes[0], nodes[1]
	rotSnapshot(t, one)
	damaged := rotSnapshot(t, two)
	two.args = append(two.args, "--http-addr", monitoring)
	one.start(t)
	two.start(t)
	two.logs(t, `msg="waiting for a member's state in the place of a damaged snapshot"`)
	status, body := look(t, monitoring, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "waiting for a member's state")
	changes(t, two.addr, statusAtRisk, "n2 does not take part yet: waiting for a member's state", "status")
	nodes[2].start(t)
	for _, n := range nodes {
		waitServing(t, n)
		require.Equal(t, "v", client(t, n).Get(t.Context(), "last").Val())
		require.Equal(t, "v", client(t, n).Get(t.Context(), "k0").Val())
	}
	two.logs(t, `msg="the damaged snapshot was replaced by the state of another member"`)
	require.NoFileExists(t, damaged)
	_, body = look(t, monitoring, "/metrics")
	require.Contains(t, body, "holdfast_snapshot_damaged_total 1\n")

	alone := startNodes(t, exe, 1, small...)[0]
	for range 9 {
		require.NoError(t, client(t, alone).Set(t.Context(), "k", "v", 0).Err())
	}
	require.NoError(t, client(t, alone).Do(t.Context(), "DEBUG", "SNAPSHOT").Err())
	alone.kill()
	rotSnapshot(t, alone)
	alone.start(t)
	alone.fails(t, 1,
		"its state is damaged; this node must not go on under its name, not with an emptied folder either: remove it from "+
			"the cluster and add a new one; this node knows no other member")
}
