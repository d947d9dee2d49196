//go:build unix

package main

import (
	"os"
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

// TestFolderCopied: of two processes of one identity the later goes on if it descends from the other, and else the other.
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
