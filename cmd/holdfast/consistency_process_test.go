//go:build unix

package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStateThatDiffers: a leader that has applied an entry wrongly is found. Log, /readyz and `cluster status` say so.
// The node refuses clients, also after a restart, until its state was replaced.
func TestStateThatDiffers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes the shortest interval")
	}
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
	require.Contains(t, wrong.stderr.String(), "the state of this node differs from the majority's")
	require.Equal(t, "v", client(t, other).Get(t.Context(), "k").Val())
	for _, n := range nodes {
		require.Eventually(t, func() bool {
			_, out, _ := clusterOf(build(t), n.addr, "status")
			return strings.Contains(out, "Not well: "+wrong.name+" is in quarantine")
		}, 30*time.Second, 10*time.Millisecond)
	}
	require.NotEqual(t, wrong, leaderOf(t, nodes))
	changes(t, other.addr, 1, "is in quarantine", "transfer", wrong.name)

	wrong.kill()
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
