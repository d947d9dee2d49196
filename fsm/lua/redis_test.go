package lua

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// redisServer is a redis-server that runs for a test.
type redisServer struct {
	conn net.Conn
	in   *bufio.Reader
}

// startRedis starts the redis-server that HOLDFAST_REDIS_SERVER names, and connects to it.
func startRedis(t *testing.T) *redisServer {
	conn, err := net.Dial("unix", protocoltest.StartRedis(t, "--enable-debug-command", "yes"))
	require.NoError(t, err)
	return &redisServer{conn: conn, in: bufio.NewReader(conn)}
}

// command sends a command, and returns the bytes of its reply.
func (r *redisServer) command(t testing.TB, words ...string) []byte {
	request := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		request = fmt.Appendf(request, "$%d\r\n%s\r\n", len(w), w)
	}
	require.NoError(t, r.conn.SetDeadline(time.Now().Add(30*time.Second)))
	_, err := r.conn.Write(request)
	require.NoError(t, err, words)
	defer func() {
		if t.Failed() {
			t.Logf("in reply to %q", words)
		}
	}()
	return r.reply(t, nil)
}

func (r *redisServer) reply(t testing.TB, got []byte) []byte {
	line, err := r.in.ReadBytes('\n')
	require.NoError(t, err)
	got = append(got, line...)
	n, _ := strconv.Atoi(strings.TrimSpace(string(line[1:])))
	switch line[0] {
	case '$':
		if n >= 0 {
			body := make([]byte, n+2)
			_, err := io.ReadFull(r.in, body)
			require.NoError(t, err)
			got = append(got, body...)
		}
	case '*':
		for range n {
			got = r.reply(t, got)
		}
	}
	return got
}

// eval runs a script as runSnippet does.
func (r *redisServer) eval(t testing.TB, script string) string {
	r.command(t, "FLUSHALL")
	words := append([]string{"EVAL", script, strconv.Itoa(len(snippetKeys))}, snippetKeys...)
	return showBytes(r.command(t, append(words, snippetArgs...)...), script)
}

// TestDifferentialSnippets asks a real Redis for the replies in the snippet files.
// HOLDFAST_REWRITE=1 writes the replies there.
func TestDifferentialSnippets(t *testing.T) {
	redis := startRedis(t)
	rewrite := os.Getenv("HOLDFAST_REWRITE") != ""
	for _, file := range snippetFiles(t) {
		snippets := readSnippets(t, file)
		for _, s := range snippets {
			if strings.HasPrefix(s.redis, "crash") {
				continue // Redis 7.0.15 ends with this script
			}
			got := redis.eval(t, s.script)
			if !rewrite && got != s.redis {
				t.Errorf("%s:%d\n%s\nredis %s\n file %s", file, s.line, s.script, got, s.redis)
			}
			s.redis = got
		}
		if rewrite {
			rewriteSnippets(t, file, snippets)
		}
	}
}

// rewriteSnippets puts the replies into a file, leaving all else as it is.
func rewriteSnippets(t *testing.T, file string, snippets []*snippet) {
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var out strings.Builder
	n, inScript := -1, false
	flush := func() {
		if inScript {
			out.WriteString("= " + snippets[n].redis + "\n")
		}
		inScript = false
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(data), "\n"), "\n") {
		mark, _, _ := strings.Cut(line, " ")
		if mark == "=" {
			continue
		}
		switch mark {
		case ">":
			flush()
			n++
			inScript = true
		case "|":
		default:
			flush()
		}
		out.WriteString(line + "\n")
	}
	flush()
	require.NoError(t, os.WriteFile(file, []byte(out.String()), 0o644))
}
