//go:build unix

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// `holdfast lock` and `holdfast locks` with real nodes.

// infoOf is a number of LOCK.INFO; -1: there is no such lock.
func infoOf(t *testing.T, n *node, name, field string) int64 {
	t.Helper()
	v, err := ask(context.Background(), n.addr, "LOCK.INFO", name)
	require.NoError(t, err)
	if v.IsNull() {
		return -1
	}
	f := fieldsOf(v)
	if field == "fence" {
		return fieldsOf(f["holders"].Elems[0])["fence"].Num
	}
	return f[field].Num
}

// locksOf is what `holdfast locks` says with the words of args.
func locksOf(t *testing.T, exe string, n *node, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, complaint bytes.Buffer
	cmd := exec.Command(exe, append([]string{"locks"}, args...)...)
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &complaint, append(os.Environ(), "HOLDFAST_SERVER="+n.addr)
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode(), out.String(), complaint.String()
}

// leaderFirst are the addresses of nodes, that of the leader first.
func leaderFirst(nodes []*node, leader *node) []string {
	addrs := []string{leader.addr}
	for _, n := range nodes {
		if n != leader {
			addrs = append(addrs, n.addr)
		}
	}
	return addrs
}

// TestLockOutlivesItsNode: the leader is killed, with which one command holds the lock and another waits.
func TestLockOutlivesItsNode(t *testing.T) {
	exe := build(t)
	nodes := startNodes(t, exe, 3)
	leader := leaderOf(t, nodes)
	addrs := leaderFirst(nodes, leader)
	holds := locking(t, exe, addrs, "job", "--", "sh", "-c", loop)
	holds.says(t, "ready")
	waits := locking(t, exe, addrs, "--wait", "1h", "job", "--", "sh", "-c", `echo "got $HOLDFAST_FENCE."`)
	require.Eventually(t, func() bool { return infoOf(t, leader, "job", "waiters-count") == 1 }, 20*time.Second, 5*time.Millisecond)
	fence := infoOf(t, leader, "job", "fence")

	leader.kill()
	other := nodes[0]
	if other == leader {
		other = nodes[1]
	}
	waitServing(t, other)
	// The session lives with another node when its connection does.
	require.Eventually(t, func() bool {
		v, err := ask(context.Background(), other.addr, "LOCK.INFO", "job")
		waiters := fieldsOf(v)["waiters"].Elems
		return err == nil && len(waiters) == 1 && !strings.HasPrefix(fieldsOf(waiters[0]).text("client"), leader.name+"/")
	}, 20*time.Second, 5*time.Millisecond, "the waiter asks again")
	require.Equal(t, fence, infoOf(t, other, "job", "fence"))
	require.Empty(t, waits.stdout.String())
	require.NoError(t, holds.cmd.Process.Signal(syscall.SIGTERM))
	require.Zero(t, holds.status(t), "the command had its lock until its end: %s", holds.stderr)
	require.Zero(t, waits.status(t))
	require.Contains(t, waits.stdout.String(), "got ")
	require.Eventually(t, func() bool { return infoOf(t, other, "job", "holders-count") == -1 }, 20*time.Second, 5*time.Millisecond, "nothing is left")
}

// TestLocksListsAndBreaks: who holds, who waits, and the end of a hold.
func TestLocksListsAndBreaks(t *testing.T) {
	exe := build(t)
	n := startNodes(t, exe, 1)[0]
	holds := locking(t, exe, []string{n.addr}, "--note", "the first", "job:a", "--", "sh", "-c", loop)
	holds.says(t, "ready")
	waits := locking(t, exe, []string{n.addr}, "job:a", "--", "true")
	require.Eventually(t, func() bool { return infoOf(t, n, "job:a", "waiters-count") == 1 }, 20*time.Second, 5*time.Millisecond)
	_, err := ask(context.Background(), n.addr, "LOCK.ACQUIRE", "sem\x1b[2J", "o", "PX", "3600000", "LIMIT", "3", "PERMITS", "2")
	require.NoError(t, err)

	status, out, _ := locksOf(t, exe, n)
	require.Zero(t, status)
	require.Regexp(t, `(?m)^LOCK +STATE +OWNER +FENCE +MODE +FOR +LEFT +NOTE$`, out)
	require.Regexp(t, `(?m)^job:a +held +\S+ +\d+ +exclusive +\S+ +its session, \d+ +the first$`, out)
	require.Regexp(t, `(?m)^job:a +waits +\S+ +- +exclusive +\S+ +\S+ +true$`, out)
	require.Regexp(t, `(?m)^"sem\\x1b\[2J" +held +o +\d+ +permits 2 +\S+ +\S+ +-$`, out, "names are other people's")
	_, out, _ = locksOf(t, exe, n, "job:*")
	require.NotContains(t, out, "sem")

	status, _, complaint := locksOf(t, exe, n, "break", "job:a", "--fence", "999", "--reason", "stuck")
	require.Equal(t, 1, status)
	require.Contains(t, complaint, "there is no such hold")
	status, out, _ = locksOf(t, exe, n, "break", "job:a", "--reason", "stuck")
	require.Zero(t, status)
	require.Equal(t, "broke 1 of job:a\n", out)
	require.Equal(t, statusLost, holds.status(t))
	holds.oneLine(t, ": broken")
	require.Zero(t, waits.status(t))
}

// TestLockWithASecuredNode: TLS with certificates on both sides, and a password from its file.
func TestLockWithASecuredNode(t *testing.T) {
	ca := newAuthority(t)
	ca.issue(t, "node")
	ca.issue(t, "client")
	file := ca.file("password")
	require.NoError(t, os.WriteFile(file, []byte("open sesame\n"), 0o600))
	exe := build(t)
	n := launch(t, exe, 1, "--password-file", file, "--tls-cert", ca.file("node.crt"), "--tls-key", ca.file("node.key"), "--tls-client-ca", ca.file("ca.crt"))[0]
	secured := []string{"--password-file", file, "--tls-ca", ca.file("ca.crt"), "--tls-cert", ca.file("client.crt"), "--tls-key", ca.file("client.key"), "job", "--", "true"}
	require.Eventually(t, func() bool { return locking(t, exe, []string{n.addr}, secured...).status(t) == 0 }, 20*time.Second, 50*time.Millisecond)
	for want, flags := range map[string][]string{
		"certificate":  {"--password-file", file, "--tls", "job", "--", "true"},
		"remote error": {"--password-file", file, "--tls-ca", ca.file("ca.crt"), "job", "--", "true"},
		"WRONGPASS":    append([]string{"--password", "guess"}, secured[2:]...),
	} {
		r := locking(t, exe, []string{n.addr}, flags...)
		require.Equal(t, 1, r.status(t))
		r.oneLine(t, want)
	}
}

// TestLockOfAFrozenHolder: a frozen process, whose kernel still answers, loses its lock when the TTL has passed, and
// ends its command when it thaws.
func TestLockOfAFrozenHolder(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the TTL")
	}
	exe := build(t)
	n := startNodes(t, exe, 1)[0]
	frozen := locking(t, exe, []string{n.addr}, "--ttl", "5s", "--grace", "100ms", "job", "--", "sh", "-c", loop)
	frozen.says(t, "ready")
	waits := locking(t, exe, []string{n.addr}, "--ttl", "1m", "--wait", "1m", "job", "--", "echo", "got")
	require.Eventually(t, func() bool { return infoOf(t, n, "job", "waiters-count") == 1 }, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, frozen.cmd.Process.Signal(syscall.SIGSTOP))
	require.Zero(t, waits.status(t), waits.stderr)
	require.NoError(t, frozen.cmd.Process.Signal(syscall.SIGCONT))
	require.Equal(t, statusLost, frozen.status(t))
	frozen.oneLine(t, "lost job")
	require.Contains(t, n.stderr.String(), `reason="its client was silent for a session's lease"`)
}
