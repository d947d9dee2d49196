//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/cmd/internal/clienttest"
	"github.com/holdfast/holdfast/protocol"
)

// locking starts `holdfast lock` with the words of args.
func locking(t *testing.T, exe string, addrs []string, args ...string) *program {
	t.Helper()
	return running(t, exec.Command(exe, append([]string{"lock", "--server", strings.Join(addrs, ",")}, args...)...))
}

// oneLine requires that it said one line, which has text.
func (r *program) oneLine(t *testing.T, text string) {
	t.Helper()
	require.Contains(t, r.stderr.String(), text)
	require.Equal(t, 1, strings.Count(r.stderr.String(), "holdfast lock: "), &r.stderr)
	require.Contains(t, r.stderr.String(), "holdfast lock: ")
	require.True(t, strings.HasSuffix(r.stderr.String(), "\n"), &r.stderr)
}

// TestLockGivesItsCommandsStatus: the statuses are those of a shell, and the lock is free afterwards.
func TestLockGivesItsCommandsStatus(t *testing.T) {
	exe, c := build(t), clienttest.Start(t, 1)
	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, nil, 0o600))
	for want, command := range map[int]string{
		0:   `sh -c true`,
		7:   `sh -c exit§7`,
		126: plain,
		127: `no-such-command`,
		130: `sh -c kill§-INT§$$`,
		143: `sh -c kill§-TERM§$$`,
	} {
		words := strings.Fields(command)
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "§", " ")
		}
		r := locking(t, exe, c.Addrs(), append([]string{"job", "--"}, words...)...)
		require.Equal(t, want, r.status(t), command)
		require.Empty(t, c.Holder("job"))
		require.Equal(t, want == 126 || want == 127, r.stderr.String() != "", &r.stderr)
	}
	r := locking(t, exe, c.Addrs(), "job", "--", filepath.Dir(plain))
	require.Equal(t, 126, r.status(t), "a folder")
	greeted := c.Sent("HELLO")
	r = locking(t, exe, c.Addrs(), "job", "--ttl", "5s", "--", "sh", "-c",
		`echo "$HOLDFAST_LOCK $HOLDFAST_FENCE $1"; echo "$HOLDFAST_OWNER" >&2`, "sh", "--ttl")
	require.Zero(t, r.status(t))
	require.Regexp(t, `^job \d+ --ttl\n$`, r.stdout.String())
	require.Equal(t, greeted+1, c.Sent("HELLO"), "one connection")
	require.Contains(t, r.stderr.String(), ":"+strconv.Itoa(r.PID())+":")
}

// TestLockFindsItsCommandAsShellsDo: a script without a first line that names its program is a shell's; a file of the
// path that is no program is not missing.
func TestLockFindsItsCommandAsShellsDo(t *testing.T) {
	exe, c := build(t), clienttest.Start(t, 1)
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plain"), nil, 0o600))
	require.Equal(t, 126, locking(t, exe, c.Addrs(), "job", "--", "plain").status(t))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "script"), []byte("echo \"$0 $1 $HOLDFAST_LOCK\"; exit 9\n"),
		0o700))
	r := locking(t, exe, c.Addrs(), "job", "--", "script", "two words")
	require.Equal(t, 9, r.status(t), &r.stderr)
	require.Equal(t, filepath.Join(dir, "script")+" two words job\n", r.stdout.String())
	t.Setenv("PATH", ".:"+os.Getenv("PATH"))
	t.Chdir(dir)
	require.Equal(t, 9, locking(t, exe, c.Addrs(), "job", "--", "script").status(t))
}

// refusing starts a server that replies to HELLO and TIME as a Redis does, and to other commands with an error.
func refusing(t *testing.T, refusal func(command string) string) (addr string) {
	t.Helper()
	return answers(t, func(words []string) protocol.Value {
		switch words[0] {
		case "HELLO":
			return protocol.Map()
		case "TIME":
			return protocol.Strings("1796028882", "0")
		}
		return protocol.ErrValue(refusal(words[0]))
	})
}

// TestServerThatIsNoHoldfast: a Redis at the address is named as the reason.
func TestServerThatIsNoHoldfast(t *testing.T) {
	t.Setenv("HOLDFAST_SERVER", refusing(t, func(command string) string {
		return fmt.Sprintf("ERR unknown command '%s', with args beginning with: 'x' ", command)
	}))
	for command, args := range map[string][]string{
		"SESSION.OPEN": {"lock", "a", "--", "true"}, "LOCK.LIST": {"locks"}, "LOCK.HISTORY": {"locks", "history"},
		"RAFT.STATUS": {"cluster", "status"}, "RAFT.BACKUP": {"backup", filepath.Join(t.TempDir(), "x")},
	} {
		status, _, stderr := try(t, args...)
		require.Equal(t, 1, status, stderr)
		require.Contains(t, stderr, "unknown command '"+command+"': this server is no Holdfast: see --server\n")
	}
}

// TestBackupWithoutALeader: the error names the flag for a cluster that has lost its majority, unless it was given.
func TestBackupWithoutALeader(t *testing.T) {
	t.Setenv("HOLDFAST_SERVER", refusing(t, func(string) string { return "CLUSTERDOWN No leader is known" }))
	file := filepath.Join(t.TempDir(), "x")
	status, _, stderr := try(t, "backup", file)
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "No leader is known; if the majority is lost, --stale takes what a node has\n")
	status, _, stderr = try(t, "backup", "--stale", file)
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "No leader is known\n")
}

// TestLockSaysInOneLineWhyNot: and with status 1, or 2 for bad usage and for files that cannot be read.
func TestLockSaysInOneLineWhyNot(t *testing.T) {
	exe, c := build(t), clienttest.Start(t, 1, "open sesame")
	c.Take("taken")
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("open sesame\n"), 0o600))
	unused := freeAddrs(t, 1)
	for _, tc := range []struct {
		addrs  []string
		flags  string
		status int
		want   string
	}{
		{c.Addrs(), "--password guess", 1, "WRONGPASS"},
		{c.Addrs(), "", 1, "NOAUTH"},
		{unused, "--wait 0", 1, "connection refused"},
		{unused, "--wait 1ms", 1, "not granted in time: "},
		{c.Addrs(), "--password-file " + file + ".not", 2, "no such file"},
		{c.Addrs(), "--tls --password x --wait 0", 1, "TLS: "},
		{c.Addrs(), "--tls-ca " + file, 2, "holds no PEM certificate"},
		{c.Addrs(), "--password-file " + file + " --wait 0", statusNotGranted, "taken: not granted in time"},
		{c.Addrs(), "--password-file " + file + " --wait 1s", statusNotGranted, "taken: not granted in time"},
		{c.Addrs(), "--nonsense", 2, "flag provided but not defined"},
		{c.Addrs(), "--ttl 1ms", 2, "at least 1s"},
		{c.Addrs(), "--limit -1", 2, "--limit -1: at least 1"},
		{c.Addrs(), "-E 256", 2, "-E 256: from 0 to 255"},
		{c.Addrs(), "--permits 2", 2, "--permits 2 needs --limit"},
		{c.Addrs(), "--permits 3 --limit 2", 2, "--permits 3 is more than --limit 2"},
		{unused, "--note " + strings.Repeat("x", 1025), 2, "--note has 1025 bytes: at most 1024"},
		{[]string{"a:b:c"}, "", 2, `server "a:b:c"`},
	} {
		r := locking(t, exe, tc.addrs, append(strings.Fields(tc.flags), "taken", "--", "true")...)
		require.Equal(t, tc.status, r.status(t), "%v: %s", tc, &r.stderr)
		r.oneLine(t, tc.want)
	}
	r := locking(t, exe, c.Addrs(), "--password-file", file, "free", "--", "true")
	require.Zero(t, r.status(t), &r.stderr)
}

// loop is a shell's command that runs until it is told to end, and says so.
const loop = `trap "echo told; exit 0" TERM; trap "echo interrupted; exit 5" INT; echo ready
while :; do sleep 0.05; done`

// deaf is a command that heeds no SIGTERM.
const deaf = `trap "" TERM; echo ready; while :; do sleep 0.05; done`

// TestLockHandsSignalsOn: to the command while it runs; before, a signal ends the wait.
func TestLockHandsSignalsOn(t *testing.T) {
	exe, c := build(t), clienttest.Start(t, 1)
	r := locking(t, exe, c.Addrs(), "job", "--", "sh", "-c", loop)
	r.says(t, "ready")
	waits := locking(t, exe, c.Addrs(), "job", "--", "echo", "never")
	require.Eventually(t, func() bool { return c.Waiters("job") == 1 }, 20*time.Second, time.Millisecond)
	require.NoError(t, waits.Signal(syscall.SIGTERM))
	require.Equal(t, 143, waits.status(t))
	require.Eventually(t, func() bool { return c.Waiters("job") == 0 }, 20*time.Second, time.Millisecond)
	require.Empty(t, waits.stdout.String())
	require.NoError(t, r.Signal(syscall.SIGINT))
	require.Equal(t, 5, r.status(t))
	require.Contains(t, r.stdout.String(), "interrupted")
	require.Empty(t, c.Holder("job"))
}

// TestLockEndsACommandThatLost: SIGTERM, after the grace SIGKILL, for the command and its children.
func TestLockEndsACommandThatLost(t *testing.T) {
	exe, c := build(t), clienttest.Start(t, 1)
	t.Run("it heeds", func(t *testing.T) {
		r := locking(t, exe, c.Addrs(), "--grace", "1h", "job", "--", "sh", "-c", loop)
		r.says(t, "ready")
		c.Break("job")
		require.Equal(t, statusLost, r.status(t))
		r.says(t, "told")
		r.oneLine(t, ": broken")
	})
	t.Run("it does not", func(t *testing.T) {
		r := locking(t, exe, c.Addrs(), "--grace", "10ms", "job", "--", "sh", "-c", deaf)
		r.says(t, "ready")
		c.Break("job")
		require.Equal(t, statusLost, r.status(t))
	})
	t.Run("its child does not", func(t *testing.T) {
		r := locking(t, exe, c.Addrs(), "--grace", "500ms", "job", "--", "sh", "-c", `sh -c '`+deaf+
			`' & echo child $!.; wait`)
		r.says(t, "ready")
		r.says(t, ".")
		_, rest, _ := strings.Cut(r.stdout.String(), "child ")
		pid, _, _ := strings.Cut(rest, ".")
		c.Break("job")
		require.Equal(t, statusLost, r.status(t))
		require.Eventually(t, func() bool { return gone(t, pid) }, 20*time.Second, time.Millisecond)
	})
	t.Run("it had stopped", func(t *testing.T) {
		r := locking(t, exe, c.Addrs(), "--grace", "1h", "job", "--", "sh", "-c", `echo ready; kill -STOP $$`)
		r.says(t, "ready")
		c.Break("job")
		require.Equal(t, statusLost, r.status(t))
	})
}

// stopped reports whether a process was stopped; always where the system does not say.
func stopped(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err != nil || strings.Contains(string(stat), ") T ")
}

// TestLockWakesACommandThatLost: one that was stopped goes on, so that it can end by SIGTERM in its own way.
func TestLockWakesACommandThatLost(t *testing.T) {
	exe, c := build(t), clienttest.Start(t, 1)
	r := locking(t, exe, c.Addrs(), "--grace", "1h", "job", "--", "sh", "-c",
		`trap "echo told; exit 0" TERM; echo pid $$.; kill -STOP $$`)
	r.says(t, ".")
	_, rest, _ := strings.Cut(r.stdout.String(), "pid ")
	pid, _, _ := strings.Cut(rest, ".")
	require.Eventually(t, func() bool { return stopped(pid) }, 20*time.Second, time.Millisecond)
	c.Break("job")
	require.Equal(t, statusLost, r.status(t))
	r.says(t, "told")
}

// TestLockUnderNohup: a signal that it was started to ignore ends neither the wait nor the command.
func TestLockUnderNohup(t *testing.T) {
	exe, c := build(t), clienttest.Start(t, 1)
	nohup := filepath.Join(t.TempDir(), "nohup")
	require.NoError(t, os.WriteFile(nohup, []byte("#!/bin/sh\ntrap '' HUP\nexec \""+exe+"\" \"$@\"\n"), 0o700))
	c.Take("job")
	r := locking(t, nohup, c.Addrs(), "job", "--", "sh", "-c", loop)
	require.Eventually(t, func() bool { return c.Waiters("job") == 1 }, 20*time.Second, time.Millisecond)
	require.NoError(t, r.Signal(syscall.SIGHUP))
	c.Break("job")
	r.says(t, "ready")
	require.NoError(t, r.Signal(syscall.SIGHUP))
	require.NoError(t, r.Signal(syscall.SIGTERM))
	require.Zero(t, r.status(t))
	require.Contains(t, r.stdout.String(), "told")
}

// TestLockTellsALateLoss: when no notice came, it comes to light at the release.
func TestLockTellsALateLoss(t *testing.T) {
	exe, c := build(t), clienttest.Start(t, 1)
	file := filepath.Join(t.TempDir(), "go on")
	r := locking(t, exe, c.Addrs(), "--ttl", "1h", "job", "--", "sh", "-c",
		`echo ready; while [ ! -e "$1" ]; do sleep 0.05; done`, "sh", file)
	r.says(t, "ready")
	c.Take("job")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.Equal(t, statusLost, r.status(t))
	r.oneLine(t, "no longer this owner's")
}

// gone reports whether no process of that pid runs; one that is dead and not yet fetched by init counts.
func gone(t *testing.T, pid string) bool {
	t.Helper()
	number, err := strconv.Atoi(pid)
	require.NoError(t, err)
	stat, _ := os.ReadFile("/proc/" + pid + "/stat")
	return errors.Is(syscall.Kill(number, 0), syscall.ESRCH) || strings.Contains(string(stat), ") Z ")
}

// TestLockEndsACommandBeforeItsSession: where no node can be asked, whatever the grace.
func TestLockEndsACommandBeforeItsSession(t *testing.T) {
	exe, c := build(t), clienttest.Start(t, 1)
	r := locking(t, exe, c.Addrs(), "--ttl", "3s", "--grace", "1h", "job", "--", "sh", "-c", deaf)
	r.says(t, "ready")
	c.Kill(0)
	require.Equal(t, statusLost, r.status(t))
	require.NotEmpty(t, c.Holder("job"), "the session has not ended yet")
	r.oneLine(t, "no node could be reached")
}

// TestLockLeavesChildrenOfACommandThatEnded: they are not the lock's, which is free when the command ends.
func TestLockLeavesChildrenOfACommandThatEnded(t *testing.T) {
	exe, c := build(t), clienttest.Start(t, 1)
	r := locking(t, exe, c.Addrs(), "job", "--", "sh", "-c", `sleep 1000 </dev/null >/dev/null 2>&1 & echo child $!.`)
	require.Zero(t, r.status(t))
	_, rest, _ := strings.Cut(r.stdout.String(), "child ")
	pid, _, _ := strings.Cut(rest, ".")
	require.False(t, gone(t, pid))
	require.Empty(t, c.Holder("job"))
	number, _ := strconv.Atoi(pid)
	require.NoError(t, syscall.Kill(number, syscall.SIGKILL))
}

// TestLockPassesInput: the command's standard input is this program's.
func TestLockPassesInput(t *testing.T) {
	exe, c := build(t), clienttest.Start(t, 1)
	cmd := exec.Command(exe, "lock", "job", "--", "cat")
	cmd.Env = append(os.Environ(), "HOLDFAST_SERVER="+c.Addrs()[0])
	cmd.Stdin = io.LimitReader(strings.NewReader("some text"), 9)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err)
	require.Equal(t, "some text", string(out))
}
