//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// block is a fenced block of a chapter.
type block struct{ where, code string }

// operatorPages is the text of all pages of server/operating, one behind the other.
func operatorPages(t *testing.T) string {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join("..", "..", "server", "operating", "*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	var all strings.Builder
	for _, page := range pages {
		all.WriteString(protocoltest.ReadFile(t, page))
	}
	return all.String()
}

// TestOperatorPagesAreShort: a page is what somebody in trouble can read through.
func TestOperatorPagesAreShort(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join("..", "..", "server", "operating", "*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	for _, page := range pages {
		text := protocoltest.ReadFile(t, page)
		require.LessOrEqual(t, strings.Count(text, "\n"), 200, "%s is too long", page)
	}
}

// chapter are the blocks between <!-- name --> and <!-- /name --> of the operator's pages.
func chapter(t *testing.T, name string) (blocks []block) {
	t.Helper()
	_, inside, _ := section(t, operatorPages(t), name)
	for _, m := range regexp.MustCompile("(?ms)^```sh (once|each-node|others|root)\n(.*?)^```$").FindAllStringSubmatch(
		inside, -1) {
		blocks = append(blocks, block{m[1], m[2]})
	}
	require.Equal(t, strings.Count(inside, "```")/2, len(blocks), "a block does not say where it is run")
	return blocks
}

// TestRotateAsWritten runs the chapter of the operator's pages about passwords, secrets and certificates on three
// nodes. A client of each stays connected, and clients that connect between two steps are admitted; all nodes reach
// each other over connections that are made between two steps. At the end the new credentials are in force, and the old
// ones are not.
func TestRotateAsWritten(t *testing.T) {
	older, newer := newAuthority(t), newAuthority(t)
	m := newMachines(t, build(t))
	m.run(t, "install", 0, 1, 2)
	write := func(i int, file, text string) {
		require.NoError(t, os.WriteFile(m.path(i, "etc", file), []byte(text), 0o600))
	}
	read := func(i int, file string) string { return protocoltest.ReadFile(t, m.path(i, "etc", file)) }
	pair := func(i int, a *authority, crt, key string) {
		cert, private := a.pair(t, fmt.Sprint("n", i+1))
		write(i, crt, cert)
		write(i, key, private)
	}
	const peers = "\nHOLDFAST_PEER_TLS_CERT=/etc/holdfast/peer.crt\nHOLDFAST_PEER_TLS_KEY=/etc/holdfast/peer.key" +
		"\nHOLDFAST_PEER_TLS_CA=/etc/holdfast/peer-ca.crt\n"
	for i := range 3 {
		write(i, "password", "old password") // without a line's end, as printf writes it
		write(i, "cluster-secret", "old secret\n")
		write(i, "peer-ca.crt", older.text(t, "ca.crt"))
		pair(i, older, "peer.crt", "peer.key")
		write(i, "holdfast.env", read(i, "holdfast.env")+m.here(i, peers))
		m.sh(t, i, "systemctl restart holdfast")
	}
	const whole = "until holdfast cluster status --voters 3; do sleep 1; done"
	m.sh(t, 0, whole)
	var stay []*redis.Conn
	for i := range 3 {
		stay = append(stay, m.client(t, i).Conn())
	}
	old := m.client(t, 0).Options().Password
	for _, b := range chapter(t, "rotate") {
		if b.where == "once" {
			m.block(t, b)
			continue
		}
		for i := range 3 {
			if strings.Contains(b.code, "new.crt") {
				pair(i, older, "new.crt", "new.key")
			}
			if strings.Contains(b.code, "new-ca.crt") {
				write(i, "new-ca.crt", newer.text(t, "ca.crt"))
			}
			if strings.Contains(b.code, "rm new-ca.crt") { // "replace the certificates of all nodes, as above"
				pair(i, newer, "peer.crt", "peer.key")
			}
		}
		for i := range 3 {
			m.block(t, b, i)
			if i == 1 { // the others have other files by now than the last node, and must admit it
				m.sh(t, 2, "systemctl restart holdfast\n"+whole)
				stay[2] = m.client(t, 2).Conn()
			}
			for j, c := range stay {
				require.NoError(t, c.Incr(t.Context(), "n").Err(), b.code)
				require.NoError(t, m.client(t, j).Incr(t.Context(), "n").Err(), b.code)
			}
		}
	}
	for i := range 3 {
		require.NotContains(t, read(i, "password"), old)
		require.NotContains(t, read(i, "cluster-secret"), "old")
		require.Equal(t, read(0, "password"), read(i, "password"))
		require.Equal(t, read(0, "cluster-secret"), read(i, "cluster-secret"))
		require.Equal(t, newer.text(t, "ca.crt"), read(i, "peer-ca.crt"))
		c := m.client(t, i)
		c.Options().Password = old
		require.Error(t, c.Incr(t.Context(), "n").Err())
		left, err := os.ReadDir(m.path(i, "etc"))
		require.NoError(t, err)
		require.Len(t, left, 6, "something is left behind")
	}
}

// TestAJobHangsAsWritten: three jobs hang, with a native lock, a string and a hash of Redisson's. Each is found and
// broken by the commands of the chapter, and by none of them if it is held by somebody else meanwhile.
func TestAJobHangsAsWritten(t *testing.T) {
	exe := build(t)
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("open sesame\n"), 0o600))
	n := plan(t, exe, 1, "--password-file", password)[0]
	n.start(t)
	c := redis.NewClient(&redis.Options{Addr: n.addr, Password: "open sesame"})
	defer c.Close()
	ctx := t.Context()
	require.Eventually(t, func() bool { return c.Ping(ctx).Err() == nil && c.Exists(ctx, "nightly").Err() == nil },
		20*time.Second, 10*time.Millisecond)
	job := locking(t, exe, []string{n.addr}, "--password-file", password, "--grace", "100ms", "nightly", "--", "sh", "-c",
		loop)
	job.says(t, "ready")
	info, err := c.Do(ctx, "LOCK.INFO", "nightly").Result()
	require.NoError(t, err)
	fence := info.(map[any]any)["holders"].([]any)[0].(map[any]any)["fence"].(int64)
	require.NoError(t, c.SetNX(ctx, "report", "3f1c8a90", time.Hour).Err())
	require.NoError(t,
		c.Eval(ctx, "redis.call('HINCRBY', KEYS[1], ARGV[2], 1) return redis.call('PEXPIRE', KEYS[1], ARGV[1])",
			[]string{"import"}, 3_600_000, "8743c9c0:41").Err())
	woken := c.Subscribe(ctx, "redisson_lock__channel:{import}")
	defer woken.Close()
	_, err = woken.Receive(ctx)
	require.NoError(t, err)

	bin, settings := t.TempDir(), filepath.Join(t.TempDir(), "holdfast.env")
	require.NoError(t, os.WriteFile(settings, []byte("HOLDFAST_ADDR="+n.addr+"\nHOLDFAST_PASSWORD_FILE="+password+"\n"),
		0o600))
	require.NoError(t, os.Symlink(exe, filepath.Join(bin, "holdfast")))
	run := func(line string) string {
		cmd := exec.Command("sh", "-eu", "-c", line)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), envFileVariable+"="+settings)
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	_, inside, _ := section(t, operatorPages(t), "hangs")
	var lines []string
	for _, block := range fenced(inside, "sh") {
		lines = append(lines, slices.Collect(strings.Lines(block))...)
	}
	late := strings.NewReplacer("--fence 7", fmt.Sprint("--fence ", fence+1), "3f1c8a90", "another", "8743c9c0:41",
		"8743c9c0:42")
	held := strings.NewReplacer("--fence 7", fmt.Sprint("--fence ", fence))
	host, err := os.Hostname()
	require.NoError(t, err)
	want := []struct{ tooLate, said string }{
		{"", host + ":" + fmt.Sprint(job.PID())},
		{"no such hold", "broke 1 of nightly"},
		{"no such hold", "broke 1 of report"},
		{"no such hold", "broke 1 of import"},
		{"", "host is off"},
	}
	require.Len(t, lines, len(want))
	for i, of := range want {
		line := lines[i]
		if of.tooLate != "" {
			require.Contains(t, run(late.Replace(line)), of.tooLate, line)
		}
		require.Contains(t, run(held.Replace(line)), of.said, line)
	}
	require.Equal(t, statusLost, job.status(t))
	require.Zero(t, c.Exists(ctx, "nightly", "report", "import").Val())
	message, err := woken.ReceiveMessage(ctx)
	require.NoError(t, err)
	require.Equal(t, "0", message.Payload)
}
