//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/api"
)

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
	var others []*node
	for _, n := range nodes {
		if n != leader {
			others = append(others, n)
		}
	}
	others[0].kill()
	for _, n := range []*node{leader, others[1]} {
		said(n, statusAtRisk, "2 of 3 voters answer, the cluster stops when one more fails.")
	}
	said(&node{addr: others[0].addr + "," + leader.addr}, statusAtRisk, "2 of 3")
	leader.kill()
	said(others[1], statusAtRisk, "No leader is known to "+others[1].name)
	others[1].kill()
	said(others[1], 1, "connection refused")
}
