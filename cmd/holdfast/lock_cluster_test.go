//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/api"
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
	for _, n := range others(nodes, leader) {
		addrs = append(addrs, n.addr)
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
	require.Eventually(t, func() bool { return infoOf(t, leader, "job", "waiters-count") == 1 }, 20*time.Second,
		5*time.Millisecond)
	fence := infoOf(t, leader, "job", "fence")

	leader.Kill()
	other := others(nodes, leader)[0]
	waitServing(t, other)
	// The session lives with another node when its connection does.
	require.Eventually(t, func() bool {
		v, err := ask(context.Background(), other.addr, "LOCK.INFO", "job")
		waiters := fieldsOf(v)["waiters"].Elems
		return err == nil && len(waiters) == 1 && !strings.HasPrefix(fieldsOf(waiters[0]).text("client"), leader.name+"/")
	}, 20*time.Second, 5*time.Millisecond, "the waiter asks again")
	require.Equal(t, fence, infoOf(t, other, "job", "fence"))
	require.Empty(t, waits.stdout.String())
	require.NoError(t, holds.Signal(syscall.SIGTERM))
	require.Zero(t, holds.status(t), "the command had its lock until its end: %s", &holds.stderr)
	require.Zero(t, waits.status(t))
	require.Contains(t, waits.stdout.String(), "got ")
	require.Eventually(t, func() bool { return infoOf(t, other, "job", "holders-count") == -1 }, 20*time.Second,
		5*time.Millisecond, "nothing is left")
}

// TestLocksListsAndBreaks: who holds, who waits, and the end of a hold.
func TestLocksListsAndBreaks(t *testing.T) {
	exe := build(t)
	n := startNodes(t, exe, 1)[0]
	holds := locking(t, exe, []string{n.addr}, "--note", "the first", "job:a", "--", "sh", "-c", loop)
	holds.says(t, "ready")
	waits := locking(t, exe, []string{n.addr}, "--verbose", "job:a", "--", "true")
	require.Eventually(t, func() bool { return infoOf(t, n, "job:a", "waiters-count") == 1 }, 20*time.Second,
		5*time.Millisecond)
	require.Eventually(t, func() bool { return waits.stderr.String() != "" }, 20*time.Second, 5*time.Millisecond)
	require.Regexp(t,
		`^holdfast lock: waiting for job:a: 1st in line, held \S+ by \S+ \(127\.0\.0\.1:\d+ holdfast-lock\), fence \d+, the first\n$`, waits.stderr.String())
	refused := locking(t, exe, []string{n.addr}, "-n", "job:a", "--", "true")
	require.Equal(t, statusNotGranted, refused.status(t))
	refused.oneLine(t, "job:a: not granted in time, held ")
	require.Zero(t, locking(t, exe, []string{n.addr}, "-n", "-E", "0", "job:a", "--", "false").status(t))
	_, err := ask(context.Background(), n.addr, "LOCK.ACQUIRE", "sem\x1b[2J", "o", "PX", "3600000", "LIMIT", "3",
		"PERMITS", "2")
	require.NoError(t, err)

	status, out, _ := locksOf(t, exe, n)
	require.Zero(t, status)
	client := ` +127\.0\.0\.1:\d+ holdfast-lock +\S+ ago`
	require.Regexp(t, `^LOCK +STATE +OWNER +FENCE +MODE +FOR +LEFT +CLIENT +HEARD +NOTE\njob:a +held `, out,
		"held longest first")
	require.Regexp(t, `(?m)^job:a +held +\S+ +\d+ +exclusive +\S+ +its session, \d+`+client+` +the first$`, out)
	require.Regexp(t, `(?m)^job:a +waits +\S+ +- +exclusive +\S+ +\S+`+client+` +true$`, out)
	require.Regexp(t, `(?m)^"sem\\x1b\[2J" +held +o +\d+ +permits 2 +\S+ +\S+ .* +-$`, out, "names are other people's")
	require.Regexp(t, `\n2 locks, 0 of them stock: 2 holders, 1 waiter, held longest: \S+\n$`, out)
	_, out, _ = locksOf(t, exe, n, "job:*")
	require.NotContains(t, out, "sem")
	for args, want := range map[string]string{
		"nope": "no lock matches nope; 2 locks in all\n", "--db 3": "no locks in database 3, 2 in others\n",
		"--db 3 job*": "no lock matches job* in database 3, 1 in others; 2 locks in all\n",
	} {
		status, out, _ = locksOf(t, exe, n, strings.Fields(args)...)
		require.Zero(t, status)
		require.Equal(t, want, out)
	}
	var doc api.Locks
	_, out, _ = locksOf(t, exe, n, "--json", "job:*")
	require.NoError(t, json.Unmarshal([]byte(out), &doc), out)
	require.Equal(t, api.Format, doc.Format)
	require.Equal(t, api.Sums{Locks: 1, Holders: 1, Waiters: 1, Complete: true}, *doc.Sums)
	require.Equal(t, []any{"job:a", "the first", "true"}, []any{
		doc.Locks[0].Key, doc.Locks[0].Holders[0].Note,
		doc.Locks[0].Waiters[0].Note,
	})

	status, _, complaint := locksOf(t, exe, n, "break", "job:a", "--fence", "999", "--reason", "stuck")
	require.Equal(t, 1, status)
	require.Regexp(t,
		`job:a: there is no such hold: held \S+ by \S+ \(127\.0\.0\.1:\d+ holdfast-lock\), fence \d+, the first\n$`,
		complaint)
	status, _, complaint = locksOf(t, exe, n, "break", "nope", "--reason", "stuck")
	require.Equal(t, 1, status)
	require.Contains(t, complaint, "nope: there is no such hold: nobody holds it in database 0")
	status, out, _ = locksOf(t, exe, n, "break", "job:a", "--reason", "stuck")
	require.Zero(t, status)
	require.Equal(t, "broke 1 of job:a\n", out)
	require.Equal(t, statusLost, holds.status(t))
	holds.oneLine(t, ": broken by holdfast-locks")
	holds.oneLine(t, ": stuck\n")
	require.Zero(t, waits.status(t))
	_, out, _ = locksOf(t, exe, n, "history", "job:*")
	require.Regexp(t,
		`^ENDED +LOCK +WHY .*\n\S+Z +job:a +broken +\S+ +\d+ +\S+ +n1/\d+ +the first +lock\.break 127\.0\.0\.1:\d+ holdfast-locks\S* +stuck\n$`, out)
	var losses api.Losses
	_, out, _ = locksOf(t, exe, n, "history", "--json")
	require.NoError(t, json.Unmarshal([]byte(out), &losses), out)
	require.Len(t, losses.Losses, 1)
	_, out, _ = locksOf(t, exe, n, "history", "nope")
	require.Equal(t, "no lock that matches was lost, as far as the cluster remembers\n", out)
}

// TestLocksBreaksStockLocks: of a string and of a hash, if the token that is named is still its holder's.
func TestLocksBreaksStockLocks(t *testing.T) {
	exe := build(t)
	n := startNodes(t, exe, 1)[0]
	do := func(words ...string) {
		t.Helper()
		_, err := ask(context.Background(), n.addr, words...)
		require.NoError(t, err)
	}
	do("SET", "stock", "it's mine", "NX", "PX", "3600000")
	do("EVAL", "redis.call('HSET', KEYS[1], 'uuid:1', 1) redis.call('PEXPIRE', KEYS[1], 3600000)", "1", "red")
	do("SET", "text", "no lock")
	_, out, _ := locksOf(t, exe, n)
	require.Regexp(t, `(?m)^stock +held +it's mine +- +stock `, out)
	require.Contains(t, out, "\n2 locks, 2 of them stock: 2 holders, 0 waiters")
	for args, want := range map[string]string{
		"text":                      "text: the key holds a value that is no lock",
		"stock":                     `break it with --owner 'it'\''s mine'`,
		"stock --fence 3":           "which has no fence: use --owner TOKEN",
		"stock --owner other":       "there is no such hold: held ",
		"red --owner uuid:2":        "by uuid:1 (n1/",
		"red --owner uuid:1 --db 1": "there is no such hold: nobody holds it in database 1",
	} {
		status, _, complaint := locksOf(t, exe, n, append([]string{"break", "--reason", "stuck"}, strings.Fields(args)...)...)
		require.Equal(t, 1, status, args)
		require.Contains(t, complaint, want, args)
	}
	for name, owner := range map[string]string{"stock": "it's mine", "red": "uuid:1"} {
		status, out, complaint := locksOf(t, exe, n, "break", name, "--owner", owner, "--reason", "stuck")
		require.Zero(t, status, complaint)
		require.Equal(t, "broke 1 of "+name+": a stock lock, whose holder is not told\n", out)
	}
	_, out, _ = locksOf(t, exe, n)
	require.Equal(t, "nobody holds a lock or waits for one\n", out)
	_, out, _ = locksOf(t, exe, n, "history", "stock")
	require.Regexp(t,
		`\n\S+Z +stock +broken +it's mine +- +\S+ +n1/\d+ .* lock\.break 127\.0\.0\.1:\d+ holdfast-locks\S* +stuck\n$`, out)
}

// TestLocksWatch: frames in plain lines, until a signal; then status 0.
func TestLocksWatch(t *testing.T) {
	exe := build(t)
	n := startNodes(t, exe, 1)[0]
	watch := running(t, exec.Command(exe, "locks", "--server", n.addr, "--watch"))
	watch.says(t, "nobody holds a lock")
	_, err := ask(context.Background(), n.addr, "LOCK.ACQUIRE", "seen", "o", "PX", "3600000")
	require.NoError(t, err)
	watch.says(t, "seen")
	n.Kill()
	watch.says(t, "No node answers: ")
	require.NoError(t, watch.Signal(syscall.SIGTERM))
	require.Zero(t, watch.status(t))
}

// TestLockWithASecuredNode: TLS with certificates on both sides, and a password from its file.
func TestLockWithASecuredNode(t *testing.T) {
	ca := newAuthority(t)
	ca.issue(t, "node")
	ca.issue(t, "client")
	file := ca.file("password")
	require.NoError(t, os.WriteFile(file, []byte("open sesame\n"), 0o600))
	exe := build(t)
	n := launch(t, exe, 1, "--password-file", file, "--tls-cert", ca.file("node.crt"), "--tls-key", ca.file("node.key"),
		"--tls-client-ca", ca.file("ca.crt"))[0]
	secured := []string{
		"--password-file", file, "--tls-ca", ca.file("ca.crt"), "--tls-cert", ca.file("client.crt"),
		"--tls-key", ca.file("client.key"), "job", "--", "true",
	}
	require.Eventually(t, func() bool { return locking(t, exe, []string{n.addr}, secured...).status(t) == 0 },
		20*time.Second, 50*time.Millisecond)
	for want, flags := range map[string][]string{
		"unknown authority: say --tls-ca FILE": {"--password-file", file, "--tls", "job", "--", "true"},
		"certificate required: the node wants a client's": {
			"--password-file", file, "--tls-ca",
			ca.file("ca.crt"), "job", "--", "true",
		},
		"WRONGPASS the password is not the node's":                   append([]string{"--password", "guess"}, secured[2:]...),
		"NOAUTH the node wants a password: say --password-file":      secured[2:],
		n.addr + ": the port speaks TLS: say --tls-ca FILE, or --tl": {"--password-file", file, "job", "--", "true"},
	} {
		r := locking(t, exe, []string{n.addr}, flags...)
		require.Equal(t, 1, r.status(t))
		r.oneLine(t, want)
	}
	plain := locking(t, exe, []string{startNodes(t, exe, 1)[0].addr}, "--tls", "job", "--", "true")
	require.Equal(t, 1, plain.status(t))
	plain.oneLine(t, "the port does not speak TLS: leave the flags of TLS out")
}

// TestLockOfAFrozenHolder: a frozen process, whose kernel still answers, loses its lock when the TTL has passed, and
// ends its command when it thaws.
func TestLockOfAFrozenHolder(t *testing.T) {
	t.Parallel()
	protocoltest.SkipShort(t, "waits for the TTL")
	exe := build(t)
	n := startNodes(t, exe, 1)[0]
	frozen := locking(t, exe, []string{n.addr}, "--ttl", "5s", "--grace", "100ms", "job", "--", "sh", "-c", loop)
	frozen.says(t, "ready")
	waits := locking(t, exe, []string{n.addr}, "--ttl", "1m", "--wait", "1m", "job", "--", "echo", "got")
	require.Eventually(t, func() bool { return infoOf(t, n, "job", "waiters-count") == 1 }, 20*time.Second,
		5*time.Millisecond)
	require.NoError(t, frozen.Signal(syscall.SIGSTOP))
	require.Zero(t, waits.status(t), &waits.stderr)
	require.NoError(t, frozen.Signal(syscall.SIGCONT))
	require.Equal(t, statusLost, frozen.status(t))
	frozen.oneLine(t, "lost job")
	require.Contains(t, n.Output(), `reason="its client was silent for a session's lease"`)
}
