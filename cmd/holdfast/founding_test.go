package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// flag returns the value of a node's flag.
func (n *node) flag(name string) *string {
	i := slices.Index(n.args, "--"+name)
	return &n.args[i+1]
}

// drop takes a flag and its value away.
func (n *node) drop(name string) {
	i := slices.Index(n.args, "--"+name)
	n.args = slices.Delete(n.args, i, i+2)
}

// fails waits until the process has ended by itself, with that status and one line.
func (n *node) fails(t *testing.T, status int, want string) {
	t.Helper()
	require.NoError(t, n.Wait(20*time.Second), "%s", n.Output())
	require.Equal(t, status, n.ExitCode(), "%s", n.Output())
	lines := strings.Split(strings.TrimSpace(n.Output()), "\n")
	require.Contains(t, lines[len(lines)-1], want)
	require.True(t, strings.HasPrefix(lines[len(lines)-1], "holdfast serve: "), "%s", n.Output())
}

// newcomer is a node that joins the cluster of others.
func newcomer(t *testing.T, name string, others []*node, flags ...string) *node {
	t.Helper()
	addrs := freeAddrs(t, 2)
	var contacts []string
	for _, o := range others {
		contacts = append(contacts, *o.flag("peer-addr"))
	}
	n := newNode(t, others[0].exe, name, addrs[0], append([]string{
		"serve", "--name", name, "--addr", addrs[0], "--peer-addr", addrs[1],
		"--data-dir", filepath.Join(t.TempDir(), name), "--join", strings.Join(contacts, ","),
	}, flags...)...)
	n.start(t)
	return n
}

// logs waits until the process has logged a text.
func (n *node) logs(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(n.Output(), text) }, 30*time.Second,
		10*time.Millisecond, "%s", text)
}

// TestFirstStartWithoutANode: a cluster is founded by all of its nodes. Until then clients hear so at once.
func TestFirstStartWithoutANode(t *testing.T) {
	monitoring := freeAddrs(t, 1)[0]
	nodes := plan(t, build(t), 3)
	nodes[0].args = append(nodes[0].args, "--http-addr", monitoring)
	for _, n := range nodes[:2] {
		n.start(t)
	}
	for _, n := range nodes[:2] {
		n.logs(t, `"waiting for nodes of the initial cluster: n3"`)
	}
	c := client(t, nodes[0])
	err := c.Set(t.Context(), "a", 1, 0).Err()
	require.ErrorContains(t, err, "CLUSTERDOWN")
	_, err = c.BLPop(t.Context(), time.Minute, "list").Result()
	require.ErrorContains(t, err, "CLUSTERDOWN")
	status, _ := look(t, monitoring, "/livez")
	require.Equal(t, http.StatusOK, status)
	changes(t, nodes[0].addr, statusAtRisk, "n1 belongs to no cluster yet: waiting for nodes of the initial cluster: n3.",
		"status")
	status, body := look(t, monitoring, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "waiting for nodes of the initial cluster: n3")
	status, _ = look(t, monitoring, "/metrics")
	require.Equal(t, http.StatusOK, status)
	nodes[1].stop(t)
	require.Zero(t, nodes[1].ExitCode(), "a node can be stopped while it waits")
	nodes[1].start(t)
	nodes[2].start(t)
	for _, n := range nodes {
		waitServing(t, n)
		require.NoError(t, client(t, n).Incr(t.Context(), "a").Err())
	}
}

// TestWipedNode: a node whose folder was emptied has no part in its cluster, and says so. Under a new name it joins,
// and gets a vote; all nodes may then move to other addresses at the same time.
func TestWipedNode(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, build(t), 3)
	lost := nodes[1]
	rest := []*node{nodes[0], nodes[2]}
	require.NoError(t, client(t, nodes[0]).Set(t.Context(), "a", "b", 0).Err())
	lost.Kill()
	require.NoError(t, os.RemoveAll(*lost.flag("data-dir")))
	lost.start(t)
	lost.fails(t, 1, "and this node's folder is empty: add it with --join")

	join := []string{"--join", *rest[0].flag("peer-addr") + "," + *rest[1].flag("peer-addr")}
	lost.args = append(lost.args, join...)
	lost.start(t)
	lost.fails(t, 1, "the name n2 is in use: take another name, or remove that member first (holdfast cluster remove n2@")

	same := newcomer(t, "n2", rest)
	same.fails(t, 1, "the name n2 is in use")
	nodes[1] = newcomer(t, "n4", rest)
	nodes[1].logs(t, "this node votes")
	waitServing(t, nodes[1])

	addrs := freeAddrs(t, 3)
	var moved []string
	for i, n := range nodes {
		n.Kill()
		*n.flag("peer-addr") = addrs[i]
		moved = append(moved, n.name+"="+addrs[i])
	}
	nodes[1].drop("join")
	nodes[1].args = append(nodes[1].args, "--initial-cluster", "")
	for _, n := range nodes {
		*n.flag("initial-cluster") = strings.Join(moved, ",")
		n.start(t)
	}
	for _, n := range nodes {
		waitServing(t, n)
		require.Equal(t, "b", client(t, n).Get(t.Context(), "a").Val())
	}
	for _, addr := range addrs { // all have agreed on the new addresses
		require.Eventually(t, func() bool { return strings.Contains(members(t, nodes[0]), addr) }, 30*time.Second,
			20*time.Millisecond)
	}
}

// members is what a node says of the members.
func members(t *testing.T, n *node) string {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: n.addr, MaxRetries: -1})
	defer c.Close()
	reply, err := c.Do(context.Background(), "RAFT.MEMBERS").Result()
	if err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(fmt.Sprint(reply)), " ")
}
