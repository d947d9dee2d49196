package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/cmd/internal/operator"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server"
	"github.com/holdfast/holdfast/server/backup"
)

// TestRestoreDrill: a backup that went through a pipe is proved to be one that can be restored, and nothing is left of
// the proof; what is cut off is not. Waiters, whose connections are gone, are not missed.
func TestRestoreDrill(t *testing.T) {
	protocoltest.SkipShort(t, "processes")
	exe := build(t)
	n := startNodes(t, exe, 1)[0]
	c := client(t, n)
	require.NoError(t, c.Do(t.Context(), "LOCK.ACQUIRE", "job", "me", "PX", "600000").Err())
	require.NoError(t, c.SetNX(t.Context(), "stock", "token", 600_000_000_000).Err())
	waiter := c.Conn()
	defer waiter.Close()
	inLine := waiter.Do(t.Context(), "LOCK.ACQUIREALL", 2, "free", "job", "other", "PX", "600000", "WAIT", "600000",
		"NOTIFY")
	require.NoError(t, inLine.Err())
	require.EqualValues(t, 0, inLine.Val())
	require.NoError(t, c.Do(t.Context(), "SELECT", "3").Err())
	require.NoError(t, c.Set(t.Context(), "plain", "v", 0).Err())
	folder := t.TempDir()
	whole, cut := filepath.Join(folder, "whole"), filepath.Join(folder, "cut")
	piped := exec.Command("sh", "-c", `"$0" backup --server "$1" - | cat > "$2"`, exe, n.addr, whole)
	out, err := piped.CombinedOutput()
	require.NoError(t, err, "%s", out)
	n.Kill()
	text := protocoltest.ReadFile(t, whole)
	require.NoError(t, os.WriteFile(cut, []byte(text[:len(text)/2]), 0o600))

	run := func(words ...string) (string, error) {
		cmd := exec.Command(exe, append([]string{"restore"}, words...)...)
		tmp := t.TempDir()
		cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
		out, err := cmd.CombinedOutput()
		left, failed := os.ReadDir(tmp)
		require.NoError(t, failed)
		require.Empty(t, left)
		return string(out), err
	}
	said, err := run(whole, "--drill")
	require.NoError(t, err, said)
	require.Contains(t, said, whole+" can be restored: a node served its 3 keys, 2 locks among them, after ")
	piped = exec.Command("sh", "-c", `cat "$1" | "$0" restore --drill -`, exe, whole)
	out, err = piped.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "- can be restored: a node served its 3 keys, 2 locks among them, after ")
	said, err = run(cut, "--drill")
	require.Error(t, err)
	require.Contains(t, said, "cut off")
	said, err = run(whole, "--drill", "--drop-leases", "--keep-locks=false", "--fences-above", "1000000")
	require.NoError(t, err, said)
	require.Contains(t, said, "served its 1 keys, 0 locks among them")
	said, err = run(whole, "--drill", "--raise", "none:*")
	require.Error(t, err)
	require.Contains(t, said, `raise "none:*": no key that matches holds an integer`)
	said, err = run(whole, "--drill", "--data-dir", folder)
	require.Error(t, err)
	require.Contains(t, said, "--drill makes no data folder: leave out --data-dir")
	for _, flag := range []string{"--name", "--peer-addr", "--initial-cluster"} {
		said, err = run(whole, "--drill", flag, "n2=127.0.0.1:1")
		require.Error(t, err)
		require.Contains(t, said, "--drill makes no node: leave out --name, --peer-addr and --initial-cluster")
	}
}

// TestBucketIsNoFile: the error for the URL of a bucket names the pipe that reaches the bucket.
func TestBucketIsNoFile(t *testing.T) {
	for words, pipe := range map[string]string{
		"backup s3://b/x":               "'holdfast backup - | aws s3 cp - s3://BUCKET/NAME'",
		"backup --keep 3 s3://b/x":      "'holdfast backup - | aws s3 cp - s3://BUCKET/NAME'",
		"restore s3://b/x --drill":      "'aws s3 cp s3://BUCKET/NAME - | holdfast restore -'",
		"restore --data-dir d s3://b/x": "'aws s3 cp s3://BUCKET/NAME - | holdfast restore -'",
		"inspect s3://b/x":              "'aws s3 cp s3://BUCKET/NAME - | holdfast inspect -'",
	} {
		var said strings.Builder
		require.Equal(t, 2, run(t.Context(), strings.Fields(words), io.Discard, &said), words)
		require.Contains(t, said.String(), "s3://b/x is no file", words)
		require.Contains(t, said.String(), pipe, words)
	}
}

// TestDrillNode: the node of a drill answers only who has its password, has no limit of memory that the backup could
// exceed, and passes although holds, sessions and delays end while it serves.
func TestDrillNode(t *testing.T) {
	exe := build(t)
	n := startNodes(t, exe, 1)[0]
	c := client(t, n)
	require.NoError(t, c.Set(t.Context(), "plain", "v", 0).Err())
	require.NoError(t, c.Set(t.Context(), "lease", "v", time.Minute).Err())
	for _, words := range [][]any{
		{"LOCK.ACQUIRE", "kept", "me", "PX", "600000"},
		{"LOCK.ACQUIRE", "short", "me", "PX", "3000"},
		{"LOCK.ACQUIRE", "delayed", "me", "PX", "600000"},
		{"LOCK.BREAK", "delayed", "DELAY", "3000"},
	} {
		require.NoError(t, c.Do(t.Context(), words...).Err(), words)
	}
	file := filepath.Join(t.TempDir(), "file")
	tool(t, exe, "backup", "--server", n.addr, file)
	n.Kill()
	verify := func(ctx context.Context, c *server.Config, done *backup.Restored) error {
		require.NotEmpty(t, c.ClusterSecret)
		stranger := &operator.Servers{Addrs: []string{c.Addr}}
		_, err := stranger.DialAny(ctx, backupTimeout)
		require.ErrorContains(t, err, "NOAUTH")
		keys, locks, err := verifyServing(ctx, c, done)
		require.NoError(t, err)
		require.GreaterOrEqual(t, keys, locks+2)
		friend := &operator.Servers{Addrs: []string{c.Addr}, Password: c.Password}
		conn, err := friend.DialAny(ctx, backupTimeout)
		require.NoError(t, err)
		defer conn.Close()
		v, err := conn.Do(ctx, "INFO", "memory")
		require.NoError(t, err)
		require.Contains(t, v.Str, "\nmaxmemory:0\r")
		for _, key := range []string{"short", "delayed"} {
			_, err = conn.Do(ctx, "LOCK.ACQUIRE", key, "next", "PX", "60000", "WAIT", "60000")
			require.NoError(t, err)
			_, err = conn.Do(ctx, "LOCK.RELEASE", key, "next")
			require.NoError(t, err)
		}
		keys, locks, err = verifyServing(ctx, c, done)
		require.Equal(t, []int64{3, 1}, []int64{keys, locks})
		require.NoError(t, err)
		for _, key := range []string{"extra", "extra2", "extra3"} { // as many keys as locks have ended, and one more
			_, err = conn.Do(ctx, "SET", key, "v")
			require.NoError(t, err)
		}
		_, _, err = verifyServing(ctx, c, done)
		require.EqualError(t, err, "the node has 6 keys, where the backup has 2, and 3 native locks")
		_, err = conn.Do(ctx, "DEL", "extra", "extra2", "extra3", "plain")
		require.NoError(t, err)
		_, _, err = verifyServing(ctx, c, done)
		require.EqualError(t, err, "the node has 2 keys, where the backup has 2, and 3 native locks")
		return nil
	}
	require.NoError(t, serveBackup(t.Context(), file, newRestoreOwn(), verify))
}

// TestFirstFence: a node is asked again while it has no leader, and not when its connection is lost.
func TestFirstFence(t *testing.T) {
	for _, row := range []struct {
		replies []string
		problem string
	}{
		{[]string{"-CLUSTERDOWN no leader\r\n", ":7\r\n", ":1\r\n"}, ""},
		{[]string{"-CLUSTERDOWN no leader\r\n", "-ERR other\r\n"}, "ERR other"},
		{[]string{"-CLUSTERDOWN no leader\r\n"}, "connection lost: EOF"},
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer ln.Close()
		go func() {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			defer nc.Close()
			for _, reply := range append([]string{"%0\r\n"}, row.replies...) {
				if _, err := nc.Read(make([]byte, 1<<10)); err != nil {
					return
				}
				if _, err := io.WriteString(nc, reply); err != nil {
					return
				}
			}
		}()
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		conn, err := (&operator.Servers{}).Dial(ctx, ln.Addr().String(), backupTimeout)
		require.NoError(t, err)
		defer conn.Close()
		fence, err := firstFence(ctx, conn)
		if row.problem == "" {
			require.NoError(t, err)
			require.EqualValues(t, 7, fence.Num)
			continue
		}
		require.ErrorContains(t, err, row.problem)
	}
}

// TestBackupKeep runs the backup as the unit does: it removes the oldest files that have its names once the new one is
// proved; when the backup or its drill fails, none is removed.
func TestBackupKeep(t *testing.T) {
	protocoltest.SkipShort(t, "processes")
	exe, folder := build(t), t.TempDir()
	n := startNodes(t, exe, 1)[0]
	unit := protocoltest.ReadFile(t, "packaging/holdfast-backup.service")
	line := regexp.MustCompile(`(?m)^ExecStart=/usr/bin/holdfast (.*)$`).FindStringSubmatch(unit)
	keep := regexp.MustCompile(`(?m)^Environment=KEEP=(.*)$`).FindStringSubmatch(unit)
	require.NotNil(t, line)
	require.NotNil(t, keep)
	args := strings.Fields(strings.NewReplacer("${KEEP}", keep[1], "/var/lib/holdfast-backup", folder).Replace(line[1]))
	most, err := strconv.Atoi(keep[1])
	require.NoError(t, err)
	var old []string
	for i := range most + 1 {
		old = append(old, fmt.Sprintf("202501%02dT000000Z.bak", i+1))
	}
	young := time.Now().UTC().Format(keptLayout) + ".bak.partial-1" // another backup is under way
	const future = "29990101T000000Z.bak"                           // of a clock that was wrong
	others := []string{"20250101T000000Z.bak.gz", "before-upgrade.bak", young, future}
	const killed = "20250131T000000Z.bak.partial-1"
	for _, file := range slices.Concat(old, others, []string{killed}) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, file), nil, 0o600))
	}
	run := func(env string, more ...string) (files []string, said string, err error) {
		cmd := exec.Command(exe, append(slices.Clone(args), more...)...)
		cmd.Env = append(os.Environ(), "HOLDFAST_SERVER="+n.addr, env)
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err = cmd.Run()
		t.Log(stdout.String(), stderr.String())
		require.Equal(t, err == nil, strings.Contains(stderr.String(), future+" is of the future"))
		all, failed := os.ReadDir(folder)
		require.NoError(t, failed)
		for _, f := range all {
			if !slices.Contains(others, f.Name()) {
				files = append(files, f.Name())
			}
		}
		require.Len(t, all, len(files)+len(others), "files of other names stay")
		return files, stdout.String(), err
	}
	files, said, err := run("TMPDIR="+filepath.Join(folder, "none"), "--json") // no drill can be made
	require.Error(t, err)
	require.Empty(t, said, "there is no such file")
	require.Equal(t, append(slices.Clone(old), killed), files)
	n.Kill()
	files, _, err = run("A=B")
	require.Error(t, err)
	require.Equal(t, append(slices.Clone(old), killed), files)
	n.start(t)
	waitServing(t, n)
	_, _, err = run("A=B", "--stale")
	require.Error(t, err)
	files, said, err = run("A=B")
	require.NoError(t, err)
	require.Regexp(t, `^backup of index .*\n.* can be restored: `, said)
	require.Equal(t, old[2:], files[:most-1])
	require.Len(t, files, most)
	require.Regexp(t, `^20[0-9T]+Z\.bak$`, files[most-1])
	proof, err := exec.Command(exe, "inspect", filepath.Join(folder, files[most-1])).CombinedOutput()
	require.NoError(t, err, "%s", proof)
}

// TestBackupKeepAtOnce: several runs that remove the same files at once all succeed.
func TestBackupKeepAtOnce(t *testing.T) {
	folder := t.TempDir()
	const many, kept = 300, 3
	for i := range many {
		name := time.Unix(int64(i), 0).UTC().Format(keptLayout) + keptSuffix
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), nil, 0o600))
	}
	failed := make(chan error)
	for range 4 {
		go func() { failed <- (&puller{stderr: io.Discard}).rotate(folder, kept) }()
	}
	for range 4 {
		require.NoError(t, <-failed)
	}
	left, err := filepath.Glob(filepath.Join(folder, "*"))
	require.NoError(t, err)
	require.Len(t, left, kept)
	require.Equal(t, time.Unix(many-kept, 0).UTC().Format(keptLayout)+keptSuffix, filepath.Base(left[0]))
}
