package lua

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// redisServer is a redis-server that runs for a test.
type redisServer struct{ *protocoltest.Redis }

// startRedis starts the redis-server that HOLDFAST_REDIS_SERVER names, and connects to it.
func startRedis(t *testing.T) redisServer {
	return redisServer{protocoltest.DialRedis(t, protocoltest.StartRedis(t, "--enable-debug-command", "yes"))}
}

// eval runs a script as runSnippet does.
func (r redisServer) eval(script string) string {
	r.Do("FLUSHALL")
	words := append([]string{"EVAL", script, strconv.Itoa(len(snippetKeys))}, snippetKeys...)
	return showBytes([]byte(r.Do(append(words, snippetArgs...)...)), script)
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
			got := redis.eval(s.script)
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
	data := protocoltest.ReadFile(t, file)
	var out strings.Builder
	n, inScript := -1, false
	flush := func() {
		if inScript {
			out.WriteString("= " + snippets[n].redis + "\n")
		}
		inScript = false
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(data, "\n"), "\n") {
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
