package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/cmd/internal/clienttest"
	"github.com/holdfast/holdfast/cmd/internal/importer"
	"github.com/holdfast/holdfast/server"
)

// served is the address of a cluster of one, and a client of it.
func served(t *testing.T, password string) (string, *redis.Client) {
	t.Helper()
	addr := clienttest.StartNode(t, func(c *server.Config) { c.Password = password })
	client := redis.NewClient(&redis.Options{Addr: addr, Password: password, DB: 3})
	t.Cleanup(func() { client.Close() })
	require.Eventually(t, func() bool { return client.DBSize(t.Context()).Err() == nil }, 20*time.Second,
		10*time.Millisecond)
	return addr, client
}

// imports runs `holdfast import`.
func imports(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, complaint bytes.Buffer
	status = run(t.Context(), append([]string{"import"}, args...), &out, &complaint)
	return status, out.String(), complaint.String()
}

// TestImport: reports, statuses, and the same in JSON.
func TestImport(t *testing.T) {
	from, source := served(t, "from secret")
	to, target := served(t, "to secret")
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("from secret\n"), 0o600))
	t.Setenv("HOLDFAST_PASSWORD", "to secret")
	t.Setenv("HOLDFAST_FROM_PASSWORD_FILE", file)
	ctx := t.Context()
	source.MSet(ctx, "fence:a", 41, "fence:b\n", 7)
	source.Set(ctx, "lock:a", "token", time.Hour)
	words := []string{
		"--from", "redis://" + from + "/3", "--server", to, "--match", "fence:*", "--leases", "lock:*",
		"--raise", "1000", "--fences-above", "counters",
	}

	const report = `looked at      3 keys
counters       2 copied, 0 as large or larger already
largest        1041, fence:a
leases         1 copied, 0 there already, 0 ended meanwhile
fences         of native locks are larger than 1041 from now on
`
	status, out, complaint := imports(t, append(words, "--dry-run")...)
	require.Equal(t, 0, status, complaint)
	before, missing, _ := strings.Cut(out, "not there ")
	require.Equal(t, strings.ReplaceAll(strings.ReplaceAll(report, " copied", " copied, if this were no dry run"),
		"now on", "now on, if this were no dry run"), before)
	require.ElementsMatch(t, []string{"fence:a", `"fence:b\n"`, "lock:a"}, strings.Split(strings.TrimSpace(missing), ", "))
	require.Zero(t, target.DBSize(ctx).Val())
	require.EqualValues(t, 1, target.Do(ctx, "LOCK.ACQUIRE", "job", "me", "PX", "60000").Val())

	status, out, complaint = imports(t, words...)
	require.Equal(t, 0, status, complaint)
	require.Equal(t, report, out)
	require.Equal(t, "1041", target.Get(ctx, "fence:a").Val())
	require.Equal(t, "1007", target.Get(ctx, "fence:b\n").Val())
	require.EqualValues(t, 1042, target.Do(ctx, "LOCK.ACQUIRE", "next", "me", "PX", "60000").Val())

	status, out, complaint = imports(t, "--from", "redis://"+from+"/3", "--server", to, "--match", "fences:*")
	require.Equal(t, []any{0, "nothing        matches: the database of --from has 3 keys\n"}, []any{status, out},
		complaint)

	target.Set(ctx, "fence:b\n", "no number", 0)
	status, out, _ = imports(t, append(words, "--json")...)
	require.Equal(t, statusSkipped, status)
	var doc importDocument
	require.NoError(t, json.Unmarshal([]byte(out), &doc), out)
	require.Equal(t, importDocument{
		Format: 1, Looked: 3, Counters: tallyDocument{0, 1}, Leases: tallyDocument{0, 1}, Largest: 1041,
		LargestKey: "fence:a", FencesAbove: 1042,
		Skipped: []skippedDocument{{"another value is there", 1, []string{"fence:b\n"}}}, Missing: []string{},
	}, doc)
	_, out, _ = imports(t, words...)
	require.Contains(t, out, "skipped        1: another value is there: \"fence:b\\n\"\n")

	status, out, complaint = imports(t, "--server", to, "--fences-above", "5000")
	require.Equal(t, []any{0, "fences         of native locks are larger than 5000 from now on\n"}, []any{status, out},
		complaint)
	status, _, complaint = imports(t, "--server", to, "--fences-above", "9007199254740991")
	require.Equal(t,
		[]any{1, "holdfast import: raise the fences of native locks: ERR fences are raised to 4503599627370496 at most\n"},
		[]any{status, complaint})
}

// TestImportRefuses wrong flags, with one line that shows no password.
func TestImportRefuses(t *testing.T) {
	addr := freeAddrs(t, 1)[0]
	gone := "redis://me:hush@" + addr
	for _, c := range []struct {
		status int
		says   string
		args   []string
	}{
		{2, "say where from: --from", nil},
		{2, "say where from: --from", []string{"--match", "*"}},
		{2, "say where from: --from", []string{"--fences-above", "counters"}},
		{2, "say what: --match PATTERN", []string{"--from", gone}},
		{2, "from: use redis://", []string{"--from", "hush@host", "--match", "*"}},
		{2, "from has a password", []string{"--from", gone, "--match", "*", "--from-password", "hush"}},
		{2, "from-password-file: open /nonexist", []string{
			"--from", "redis://h", "--match", "*", "--from-password-file",
			"/nonexist",
		}},
		{2, "from-sentinel-password-file: open /nonexist", []string{
			"--from", "redis://h", "--match", "*",
			"--from-sentinel-password-file", "/nonexist",
		}},
		{2, "from-tls-ca: open /nonexist", []string{"--from", "rediss://h", "--match", "*", "--from-tls-ca", "/nonexist"}},
		{2, "load from-tls-cert and from-tls-key", []string{
			"--from", "rediss://h", "--match", "*", "--from-tls-cert",
			"/nonexist",
		}},
		{2, `"--match" is a flag`, []string{"--from", gone, "--leases", "--match", "--match", "*"}},
		{2, "raise -1: not negative", []string{"--from", gone, "--match", "*", "--raise", "-1"}},
		{2, `fences-above "0"`, []string{"--from", gone, "--match", "*", "--fences-above", "0"}},
		{2, `unexpected argument "x"`, []string{"--from", gone, "--match", "*", "x"}},
		{1, "connection refused; the same command again does the rest", []string{"--from", gone, "--match", "*"}},
	} {
		status, out, complaint := imports(t, c.args...)
		require.Empty(t, out)
		require.Equal(t, c.status, status, "%v: %s", c.args, complaint)
		require.Contains(t, complaint, c.says)
		require.NotContains(t, complaint, "hush")
		require.Equal(t, 1, strings.Count(complaint, "\n"), complaint)
	}
}

// TestImportProgress: a line every few seconds, and none for an import that is quick.
func TestImportProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		progress := progressTo(&out)
		progress(&importer.Report{Keys: 100, Looked: 50})
		require.Empty(t, out.String())
		time.Sleep(progressInterval)
		r := &importer.Report{
			Keys: 100, Looked: 120, Counters: importer.Tally{Copied: 1, There: 2}, Leases: importer.Tally{Copied: 30, There: 40},
			Skipped: []importer.Skipped{{Count: 5}, {Count: 6}},
		}
		progress(r)
		progress(r)
		require.Equal(t, "holdfast import: 120 of about 120 keys looked at, 31 copied, 42 there already, 11 skipped\n",
			out.String())
		time.Sleep(progressInterval)
		progress(&importer.Report{Keys: 300, Looked: 120})
		require.Contains(t, out.String(), "120 of about 300 keys looked at, 0 copied")
	})
}

// TestImportInterrupted: what was done until then is in the report, and the last line says how to go on.
func TestImportInterrupted(t *testing.T) {
	from, source := served(t, "")
	to, target := served(t, "")
	for i := range 3000 {
		source.Set(t.Context(), fmt.Sprint("fence:", i), i, 0)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	go func() { // the source falls silent in the middle, and then the import is interrupted
		client, _ := listener.Accept()
		server, _ := net.Dial("tcp", from)
		defer client.Close()
		defer server.Close()
		go io.Copy(server, client)
		io.CopyN(client, server, 64<<10)
		stop()
		<-t.Context().Done()
	}()
	args := []string{"--server", to, "--match", "fence:*", "--from"}
	var out bytes.Buffer
	err = importKeys(ctx, append(args, "redis://"+listener.Addr().String()+"/3"), &out, io.Discard)
	require.EqualError(t, err, "interrupted: the same command again does the rest")
	require.Contains(t, out.String(), "counters ")
	done := target.DBSize(t.Context()).Val()
	require.Positive(t, done)
	require.Less(t, done, int64(3000))
	status, _, complaint := imports(t, append(args, "redis://"+from+"/3")...)
	require.Equal(t, 0, status, complaint)
	require.EqualValues(t, 3000, target.DBSize(t.Context()).Val())
	require.Equal(t, "2999", target.Get(t.Context(), "fence:2999").Val())
}

// TestErrorsLeaveTheTerminalAlone: a server's error cannot move the cursor, or change colours or the title.
func TestErrorsLeaveTheTerminalAlone(t *testing.T) {
	addr := clienttest.Listen(t, func(conn net.Conn) {
		defer conn.Close()
		_, _ = bufio.NewReader(conn).ReadString('\n')
		_, _ = io.WriteString(conn, "-ERR \x1b]0;title\x07\u202e\u00fc\r\n")
	})
	status, _, complaint := imports(t, "--from", "redis://"+addr, "--match", "*")
	require.Equal(t, 1, status)
	require.Contains(t, complaint, `ERR \x1b]0;title\a\u202eü`)
	require.Equal(t, "two\n\tlines", escaped("two\n\tlines"))
}

// TestDurationsOfCenturies: a life of more than 292 years is shown as that, not as a short or negative one.
func TestDurationsOfCenturies(t *testing.T) {
	for _, n := range []int64{9_223_372_036_855, 1 << 53, math.MaxInt64} {
		require.Greater(t, millis(n), 292*365*24*time.Hour)
		require.Equal(t, duration(n), duration(math.MaxInt64))
	}
	require.Equal(t, "1.5s", duration(1500))
}
