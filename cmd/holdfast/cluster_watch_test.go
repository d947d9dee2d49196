//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRates: what a counter grew by in the time between two frames; nothing after a restart, and of a node that was not
// asked before or does not answer.
func TestRates(t *testing.T) {
	began := time.Unix(1000, 0)
	info := func(commands, entries, grants string) string {
		return "total_commands_processed:" + commands + "\r\nraft_applied_index:" + entries + "\r\nlock_grants:" + grants +
			"\r\nconnected_clients:7\r\nlock_holds:3\r\nlock_waiters:0\r\nused_memory_human:1.5M\r\n"
	}
	before := map[string]sample{
		"n1": {node: "n1", at: began, info: info("100", "50", "10")},
		"n2": {node: "n2", at: began, info: info("100", "50", "10")},
		"n3": {node: "n3"},
	}
	now := began.Add(2 * time.Second)
	got := rateTable([]sample{
		{node: "n1", at: now, info: info("300", "51", "10")},
		{node: "n2", at: now, info: info("20", "5", "0")},
		{node: "n3", at: now, info: info("1", "1", "1")},
		{node: "n4"},
	}, before)
	require.Equal(t, strings.Join([]string{
		"NAME  COMMANDS/S  ENTRIES/S  GRANTS/S  CLIENTS  HOLDS  WAITERS  MEMORY",
		"n1    100         0          0         7        3      0        1.5M",
		"n2    -           -          -         7        3      0        1.5M",
		"n3    -           -          -         7        3      0        1.5M",
		"n4    -           -          -         -        -      -        -",
		"",
	}, "\n"), got)
}

// TestScreen: a frame takes the place of the one before, within the terminal, and the terminal gets its own screen
// back.
func TestScreen(t *testing.T) {
	var out bytes.Buffer
	rows, columns := 3, 5
	s := &screen{w: &out, size: func() (int, int, bool) { return rows, columns, true }}
	require.NoError(t, s.show("one\ntwo is long\nthree\nfour\n"))
	require.Equal(t, "\x1b[?1049h\x1b[?25l\x1b[H\x1b[Kone\r\n\x1b[Ktwo i\r\n\x1b[Kthree", out.String(),
		"nothing is cleared behind a full line")
	out.Reset()
	require.NoError(t, s.show("one\n"))
	require.Equal(t, "\x1b[H\x1b[Kone\r\n\x1b[J", out.String())
	out.Reset()
	rows = 1
	require.NoError(t, s.show("äöüßé!\nb\n"))
	require.Equal(t, "\x1b[H\x1b[Käöüßé", out.String())
	out.Reset()
	s.leave()
	require.Equal(t, "\x1b[?25h\x1b[?1049l", out.String())
}

// TestWatchWithoutATerminal: frames in plain lines, also over the loss of nodes, until a signal; then status 0.
func TestWatchWithoutATerminal(t *testing.T) {
	t.Parallel()
	exe := build(t)
	nodes := startNodes(t, exe, 3)
	leader := leaderOf(t, nodes)
	servers := leader.addr + "," + nodes[0].addr + "," + nodes[1].addr + "," + nodes[2].addr
	watch := running(t, exec.Command(exe, "cluster", "--server", servers, "status", "--watch"))
	shows := func(like string) {
		t.Helper()
		at := len(watch.stdout.String())
		require.Eventually(t, func() bool { return strings.Contains(watch.stdout.String()[at:], like) }, 30*time.Second,
			5*time.Millisecond, "%q is not in\n%s%s", like, &watch.stdout, &watch.stderr)
	}
	shows("3 of 3 voters answer")
	_, err := ask(context.Background(), leader.addr, "SET", "k", "v")
	require.NoError(t, err)
	shows("\n" + leader.name + "  ")
	leader.Kill()
	shows("2 of 3 voters answer")
	for _, n := range others(nodes, leader) {
		n.Kill()
	}
	shows("No node answers: ")
	leader.start(t)
	shows("No leader is known to " + leader.name)
	require.NoError(t, watch.Signal(syscall.SIGINT))
	require.Zero(t, watch.status(t))
	require.NotContains(t, watch.stdout.String(), "\x1b")
	require.Empty(t, watch.stderr.String())
}

// TestWatchIsForStatus: and for nothing else.
func TestWatchIsForStatus(t *testing.T) {
	var out bytes.Buffer
	err := manage(context.Background(), []string{"members", "--watch"}, &out, &out)
	require.ErrorContains(t, err, "watch is for 'status'")
	require.True(t, errors.As(err, new(usageError)))
}
