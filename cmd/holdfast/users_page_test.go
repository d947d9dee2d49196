//go:build unix

package main

import (
	"bufio"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// startTime is how long three nodes may take to serve.
const startTime = time.Minute

// TestUsersPage runs the page about users on three nodes: each line by its user on another node.
func TestUsersPage(t *testing.T) {
	_, page, _ := section(t, operatorPages(t), "users")
	dir := t.TempDir()
	block := func(kind string) string {
		blocks := fenced(page, kind)
		require.NotEmpty(t, blocks, kind)
		return blocks[0]
	}
	passwords := map[string]string{"admin": "admin-secret"}
	for _, m := range regexp.MustCompile(`(?m)^user (\w+) on >(\S+)`).FindAllStringSubmatch(block("acl"), -1) {
		passwords[m[1]] = m[2]
	}
	for file, text := range map[string]string{
		"users.acl": block("acl"), "users.quota": block("quota"), "monitor-password": passwords["monitor"],
		"admin-password": passwords["admin"],
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	nodes := plan(t, build(t), 3, "--acl-file", filepath.Join(dir, "users.acl"), "--quota-file",
		filepath.Join(dir, "users.quota"))
	monitoring := freeAddrs(t, 1)[0]
	nodes[0].args = append(nodes[0].args, "--http-addr", monitoring)
	for _, n := range nodes {
		n.start(t)
	}
	status := func(user string) (string, error) {
		_, inside, _ := strings.Cut(block("sh"), "holdfast ")
		words := strings.Fields(strings.NewReplacer("/etc/holdfast", dir, "monitor", user).Replace(inside))
		out, err := exec.Command(nodes[0].exe, append(words, "--server", nodes[1].addr)...).CombinedOutput()
		return string(out), err
	}
	require.Eventually(t, func() bool { out, err := status("monitor"); return err == nil && strings.Contains(out, "n3") },
		startTime, 50*time.Millisecond)

	steps := regexp.MustCompile(`(?m)^(\w+)> (.*)\n((?:.+\n)*?)(?:$|\w+> )`)
	text, n := block("console"), 0
	for at := steps.FindStringSubmatchIndex(text); at != nil; at = steps.FindStringSubmatchIndex(text) {
		user, line, want := text[at[2]:at[3]], text[at[4]:at[5]], strings.TrimSpace(text[at[6]:at[7]])
		text = text[at[7]:]
		requireShownTo(t, nodes[n%3], user, passwords[user], line, want)
		n++
	}
	require.Equal(t, strings.Count(block("console"), "> "), n)

	for user, code := range map[string]int{"monitor": http.StatusOK, "orders": http.StatusForbidden} {
		request, err := http.NewRequest(http.MethodGet, "http://"+monitoring+"/metrics", nil)
		require.NoError(t, err)
		request.SetBasicAuth(user, passwords[user])
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		answer.Body.Close()
		require.Equal(t, code, answer.StatusCode, user)
	}
}

// requireShownTo requires what redis-cli shows to a user.
func requireShownTo(t *testing.T, n *node, user, password, line, want string) {
	t.Helper()
	c, err := net.Dial("tcp", n.addr)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(startTime)))
	replies := bufio.NewReader(c)
	var v protocol.Value
	for _, line := range []string{"AUTH " + user + " " + password, line} {
		_, err := c.Write([]byte(line + "\r\n"))
		require.NoError(t, err)
		require.False(t, v.IsError(), v.Str)
		v, err = protocol.ReadValue(replies)
		require.NoError(t, err)
	}
	require.Equal(t, want, shown(v), "%s> %s", user, line)
}
