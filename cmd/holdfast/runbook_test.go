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

// runbook runs a chapter's commands as they are written: blocks of "sh once" on the first node, and of "sh each-node"
// on each node in turn.
type runbook struct {
	nodes []*node
	etc   []string // what is /etc/holdfast on each node
	path  string   // a folder with commands that are not the machine's own
}

// newRunbook makes the folders before there are nodes.
func newRunbook(t *testing.T, count int) *runbook {
	t.Helper()
	r := &runbook{path: t.TempDir()}
	for range count {
		r.etc = append(r.etc, t.TempDir())
	}
	stub := "#!/bin/sh\n[ \"$1 $2\" = 'reload holdfast' ] && kill -HUP \"$MAINPID\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(r.path, "systemctl"), []byte(stub), 0o700))
	return r
}

func (r *runbook) write(t *testing.T, node int, file, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(r.etc[node], file), []byte(text), 0o600))
}

func (r *runbook) read(t *testing.T, node int, file string) string {
	t.Helper()
	text := protocoltest.ReadFile(t, filepath.Join(r.etc[node], file))
	return text
}

// sh runs a block on a node, and waits until the node has heeded it.
func (r *runbook) sh(t *testing.T, node int, code string) {
	t.Helper()
	const read = `msg="credentials read again"`
	n := r.nodes[node]
	before := strings.Count(n.Output(), read)
	c := exec.Command("sh", "-eu", "-c", strings.ReplaceAll(code, "/etc/holdfast", r.etc[node]))
	c.Env = append(os.Environ(), "PATH="+r.path+":"+os.Getenv("PATH"), fmt.Sprint("MAINPID=", n.PID()))
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s\n%s", code, out)
	require.Empty(t, string(out), code)
	if strings.Contains(code, "systemctl reload") {
		require.Eventually(t, func() bool { return strings.Count(n.Output(), read) > before }, 20*time.Second,
			5*time.Millisecond, "%s\n%s", code, n.Output())
	}
}

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
// nodes, while a client of each stays connected. At the end the new ones are in force, and the old ones are not.
func TestRotateAsWritten(t *testing.T) {
	older, newer := newAuthority(t), newAuthority(t)
	r := newRunbook(t, 3)
	pair := func(i int, a *authority, crt, key string) {
		cert, private := a.pair(t, fmt.Sprint("n", i+1))
		r.write(t, i, crt, cert)
		r.write(t, i, key, private)
	}
	r.nodes = plan(t, build(t), 3)
	for i, n := range r.nodes {
		r.write(t, i, "password", "old password") // without a line's end, as printf writes it
		r.write(t, i, "cluster-secret", "old secret\n")
		r.write(t, i, "peer-ca.crt", older.text(t, "ca.crt"))
		pair(i, older, "peer.crt", "peer.key")
		for flag, file := range map[string]string{
			"password-file": "password", "cluster-secret-file": "cluster-secret",
			"peer-tls-cert": "peer.crt", "peer-tls-key": "peer.key", "peer-tls-ca": "peer-ca.crt",
		} {
			n.args = append(n.args, "--"+flag, filepath.Join(r.etc[i], file))
		}
		n.start(t)
	}
	dial := func(n *node, password string) *redis.Client {
		c := redis.NewClient(&redis.Options{
			Addr: n.addr, Password: strings.TrimSpace(password), MaxRetries: -1,
			ReadTimeout: 10 * time.Second,
		})
		t.Cleanup(func() { c.Close() })
		return c
	}
	var stay []*redis.Conn
	for _, n := range r.nodes {
		c := dial(n, "old password")
		require.Eventually(t, func() bool { return c.Incr(t.Context(), "n").Err() == nil }, 30*time.Second,
			20*time.Millisecond, "%s", n.Output())
		conn := c.Conn()
		t.Cleanup(func() { conn.Close() })
		stay = append(stay, conn)
	}
	var made []string // by the blocks that are run once
	for _, b := range chapter(t, "rotate") {
		if b.where == "once" {
			r.sh(t, 0, b.code)
			for _, file := range []string{"new-password", "new-secret"} {
				if text, err := os.ReadFile(filepath.Join(r.etc[0], file)); err == nil {
					made = append(made, string(text))
					r.write(t, 1, file, string(text))
					r.write(t, 2, file, string(text))
				}
			}
			continue
		}
		for i := range r.nodes {
			if strings.Contains(b.code, "new.crt") {
				pair(i, older, "new.crt", "new.key")
			}
			if strings.Contains(b.code, "new-ca.crt") {
				r.write(t, i, "new-ca.crt", newer.text(t, "ca.crt"))
			}
		}
		if strings.Contains(b.code, "rm new-ca.crt") { // "replace the certificates of all nodes, as above"
			for i := range r.nodes {
				pair(i, newer, "peer.crt", "peer.key")
			}
		}
		for i := range r.nodes {
			r.sh(t, i, b.code)
			for _, c := range stay {
				require.NoError(t, c.Incr(t.Context(), "n").Err(), b.code)
			}
		}
	}
	require.Len(t, made, 2)
	password, secret := made[0], made[1]
	for i, n := range r.nodes {
		require.Equal(t, password, r.read(t, i, "password"))
		require.Equal(t, secret, r.read(t, i, "cluster-secret"))
		require.Equal(t, newer.text(t, "ca.crt"), r.read(t, i, "peer-ca.crt"))
		require.NoError(t, dial(n, password).Incr(t.Context(), "n").Err())
		require.Error(t, dial(n, "old password").Incr(t.Context(), "n").Err())
		left, err := os.ReadDir(r.etc[i])
		require.NoError(t, err)
		require.Len(t, left, 5, "something is left behind")
	}
	// New links are made with the new secret, certificate and authority.
	last := r.nodes[2]
	last.stop(t)
	last.start(t)
	c := dial(last, password)
	require.Eventually(t, func() bool { return c.Incr(t.Context(), "n").Err() == nil }, 30*time.Second,
		20*time.Millisecond, "%s", last.Output())
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
