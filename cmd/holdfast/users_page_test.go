//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/api"
)

// startTime is how long three nodes may take to serve.
const startTime = time.Minute

// TestUsersPage runs the page about users on three nodes: each line by its user on another node.
func TestUsersPage(t *testing.T) {
	_, page, _ := section(t, operatorPages(t), "users")
	dir := t.TempDir()
	block := func(kind string) string {
		blocks := fenced(page, kind)
		require.NotEmpty(t, blocks, kind)
		return blocks[0]
	}
	passwords := map[string]string{"admin": "admin-secret"}
	for _, m := range regexp.MustCompile(`(?m)^user (\w+) on >(\S+)`).FindAllStringSubmatch(block("acl"), -1) {
		passwords[m[1]] = m[2]
	}
	for file, text := range map[string]string{
		"users.acl": block("acl"), "users.quota": block("quota"), "monitor-password": passwords["monitor"],
		"admin-password": passwords["admin"],
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	nodes := plan(t, build(t), 3, "--acl-file", filepath.Join(dir, "users.acl"), "--quota-file",
		filepath.Join(dir, "users.quota"))
	monitoring := freeAddrs(t, 1)[0]
	nodes[0].args = append(nodes[0].args, "--http-addr", monitoring)
	for _, n := range nodes {
		n.start(t)
	}
	shell := strings.Split(strings.TrimSpace(block("sh")), "\n")
	run := func(line string) (string, error) {
		words := strings.Fields(strings.ReplaceAll(line, "/etc/holdfast", dir))
		out, err := exec.Command(nodes[0].exe, append(words[1:], "--server", nodes[1].addr)...).CombinedOutput()
		return string(out), err
	}
	require.Eventually(t, func() bool { out, err := run(shell[0]); return err == nil && strings.Contains(out, "n3") },
		startTime, 50*time.Millisecond)
	for _, line := range shell[1:] {
		out, err := run(line)
		require.NoError(t, err, "%s: %s", line, out)
	}

	steps := regexp.MustCompile(`(?m)^(\w+)> (.*)\n((?:.+\n)*?)(?:$|\w+> )`)
	text, n := block("console"), 0
	for at := steps.FindStringSubmatchIndex(text); at != nil; at = steps.FindStringSubmatchIndex(text) {
		user, line, want := text[at[2]:at[3]], text[at[4]:at[5]], strings.TrimSpace(text[at[6]:at[7]])
		text = text[at[7]:]
		requireShownTo(t, nodes[n%3], user, passwords[user], line, want)
		n++
	}
	require.Equal(t, strings.Count(block("console"), "> "), n)

	for user, code := range map[string]int{"monitor": http.StatusOK, "orders": http.StatusForbidden} {
		request, err := http.NewRequest(http.MethodGet, "http://"+monitoring+"/metrics", nil)
		require.NoError(t, err)
		request.SetBasicAuth(user, passwords[user])
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		answer.Body.Close()
		require.Equal(t, code, answer.StatusCode, user)
	}
}

// requireShownTo requires what redis-cli shows to a user.
func requireShownTo(t *testing.T, n *node, user, password, line, want string) {
	t.Helper()
	c, err := net.Dial("tcp", n.addr)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(startTime)))
	replies := bufio.NewReader(c)
	var v protocol.Value
	for _, line := range []string{"AUTH " + user + " " + password, line} {
		_, err := c.Write([]byte(line + "\r\n"))
		require.NoError(t, err)
		require.False(t, v.IsError(), v.Str)
		v, err = protocol.ReadValue(replies)
		require.NoError(t, err)
	}
	require.Equal(t, want, shown(v), "%s> %s", user, line)
}

// clusterOf is what `holdfast cluster` says through a node.
func clusterOf(exe, servers string, args ...string) (status int, stdout, stderr string) {
	var out, complaint bytes.Buffer
	cmd := exec.Command(exe, append([]string{"cluster", "--server", servers}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode(), out.String(), complaint.String()
}

// TestClusterStatus: the exit status says whether the cluster has a voter to spare.
func TestClusterStatus(t *testing.T) {
	t.Parallel()
	exe := build(t)
	nodes := startNodes(t, exe, 3)
	said := func(n *node, status int, like string) {
		t.Helper()
		require.Eventually(t, func() bool {
			got, out, complaint := clusterOf(exe, n.addr, "status")
			t.Logf("%d: %s%s", got, out, complaint)
			return got == status && bytes.Contains([]byte(out+complaint), []byte(like))
		}, 20*time.Second, 20*time.Millisecond, like)
	}
	leader := leaderOf(t, nodes)
	for _, n := range nodes {
		said(n, 0, "3 of 3 voters answer, 1 may fail.")
	}
	for _, word := range []string{"status", "members"} {
		_, out, _ := clusterOf(exe, leader.addr, word, "--json")
		var doc api.Cluster
		require.NoError(t, json.Unmarshal([]byte(out), &doc), out)
		require.Equal(t, []any{api.Format, leader.name, int64(3), 3}, []any{
			doc.Format, doc.Leader, doc.LiveVoters,
			len(doc.Members),
		})
	}
	for voters, want := range map[string]int{"3": 0, "4": statusAtRisk} {
		status, out, _ := clusterOf(exe, leader.addr, "status", "--voters", voters)
		require.Equal(t, want, status, "%s", out)
	}
	others := others(nodes, leader)
	others[0].Kill()
	for _, n := range []*node{leader, others[1]} {
		said(n, statusAtRisk, "2 of 3 voters answer, the cluster stops when one more fails.")
	}
	said(&node{process: process{addr: others[0].addr + "," + leader.addr}}, statusAtRisk, "2 of 3")
	leader.Kill()
	said(others[1], statusAtRisk, "No leader is known to "+others[1].name)
	others[1].Kill()
	said(others[1], 1, "connection refused")
}

// TestStateThatDiffers: a leader that has applied an entry wrongly is found. Log, /readyz and `cluster status` say so.
// The node refuses clients, also after a restart, until its state was replaced.
func TestStateThatDiffers(t *testing.T) {
	t.Parallel()
	protocoltest.SkipShort(t, "takes the shortest interval")
	nodes := plan(t, build(t), 3, "--debug", "--consistency-check-interval", "10s")
	for i, addr := range freeAddrs(t, len(nodes)) {
		nodes[i].args = append(nodes[i].args, "--http-addr", addr)
		nodes[i].start(t)
	}
	for _, n := range nodes {
		waitServing(t, n)
	}
	wrong, other, _ := parts(t, nodes)
	require.NoError(t, client(t, other).Set(t.Context(), "k", "v", 0).Err())
	_, err := ask(t.Context(), wrong.addr, "DEBUG", "CORRUPT")
	require.NoError(t, err)

	refuses := func() bool {
		status, text := look(t, *wrong.flag("http-addr"), "/readyz")
		return status == http.StatusServiceUnavailable && text != "" && client(t, wrong).Get(t.Context(), "k").Err() != nil
	}
	require.Eventually(t, refuses, 40*time.Second, 100*time.Millisecond)
	_, text := look(t, *wrong.flag("http-addr"), "/readyz")
	require.Contains(t, text, "[-]state failed")
	require.ErrorContains(t, client(t, wrong).Get(t.Context(), "k").Err(), "CLUSTERDOWN This node's state differs")
	require.Contains(t, wrong.Output(), "the state of this node differs from the majority's")
	require.Equal(t, "v", client(t, other).Get(t.Context(), "k").Val())
	for _, n := range nodes {
		require.Eventually(t, func() bool {
			_, out, _ := clusterOf(build(t), n.addr, "status")
			return strings.Contains(out, "Not well: "+wrong.name+" is in quarantine")
		}, 30*time.Second, 10*time.Millisecond)
	}
	require.NotEqual(t, wrong, leaderOf(t, nodes))
	changes(t, other.addr, 1, "is in quarantine", "transfer", wrong.name)

	wrong.Kill()
	wrong.start(t)
	require.Eventually(t, func() bool {
		v, err := ask(t.Context(), wrong.addr, "PING")
		return err == nil && v.Str == "PONG"
	}, 30*time.Second, 10*time.Millisecond)
	require.Error(t, client(t, wrong).Get(t.Context(), "k").Err())
	require.Eventually(t, func() bool {
		status, out, _ := clusterOf(build(t), other.addr, "repair", wrong.name)
		return status == 0 && out != ""
	}, 30*time.Second, time.Second, "the leader has to know of the difference")
	require.Eventually(t, func() bool {
		status, _ := look(t, *wrong.flag("http-addr"), "/readyz")
		return status == http.StatusOK
	}, 40*time.Second, 100*time.Millisecond)
	require.Equal(t, "v", client(t, wrong).Get(t.Context(), "k").Val())
	changes(t, other.addr, 1, "is not known to differ", "repair", wrong.name)
}

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
	follower.Kill()
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
	clone := newNode(t, follower.exe, follower.name, addrs[0], slices.Clone(follower.args)...)
	*clone.flag("initial-cluster") = strings.Replace(*clone.flag("initial-cluster"), *clone.flag("peer-addr"), addrs[1], 1)
	*clone.flag("addr"), *clone.flag("peer-addr"), *clone.flag("data-dir") = addrs[0], addrs[1], stopped
	clone.start(t)
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
		b := []byte(protocoltest.ReadFile(t, file))
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
		n.Kill()
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
	alone.Kill()
	rotSnapshot(t, alone)
	alone.start(t)
	alone.fails(t, 1,
		"its state is damaged; this node must not go on under its name, not with an emptied folder either: remove it from "+
			"the cluster and add a new one; this node knows no other member")
}
