package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// look asks a port for monitoring.
func look(t *testing.T, addr, path string) (status int, body string) {
	t.Helper()
	answer, err := http.Get("http://" + addr + path)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(text)
}

// TestReadyzOverLostQuorum: a node without a majority works, and is not ready; the checks say which of them failed.
func TestReadyzOverLostQuorum(t *testing.T) {
	exe := build(t)
	nodes := launch(t, exe, 3)
	for i, addr := range freeAddrs(t, 3) { // start again, each with a port of its own
		nodes[i].Kill()
		nodes[i].args = append(nodes[i].args, "--http-addr", addr, "--command-timeout", "1s")
		nodes[i].start(t)
	}
	waitServing(t, nodes...)
	left := nodes[0]
	http := left.args[len(left.args)-3]
	status, body := look(t, http, "/readyz?verbose")
	require.Equal(t, 200, status, body)
	nodes[1].Kill()
	nodes[2].Kill()
	require.Eventually(t, func() bool {
		status, body = look(t, http, "/readyz")
		return status == 503
	}, 20*time.Second, 50*time.Millisecond)
	require.Regexp(t, `\[\+\]voter ok\n\[\+\]disk ok(, slow: .*)?\n`, body)
	require.Contains(t, body, "[-]linearizable_read failed: ")
	status, body = look(t, http, "/livez")
	require.Equal(t, 200, status)
	require.Equal(t, "ok\n", body)
	status, body = look(t, http, "/metrics")
	require.Equal(t, 200, status)
	require.Contains(t, body, "\nholdfast_raft_members 3\n")
	require.Eventually(t, func() bool {
		_, body = look(t, http, "/metrics")
		return strings.Contains(body, "\nholdfast_raft_has_leader 0\n")
	}, 20*time.Second, 50*time.Millisecond)
	nodes[1].start(t)
	require.Eventually(t, func() bool {
		status, _ = look(t, http, "/readyz")
		return status == 200
	}, 20*time.Second, 50*time.Millisecond, "%s", left.Output())
}
