package protocol_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// The table's facts are compared with the facts of redis-server 7.0.15, which testdata keeps, so
// that the comparison needs no server. With HOLDFAST_REDIS_SERVER, the path of a redis-server, the
// tests of this file ask that server; HOLDFAST_REWRITE writes the server's facts into testdata.
const redisFacts = "testdata/redis-7.0.15.txt"

// deviations are the facts that differ from Redis 7.0.15 on purpose, by
// row and part.
var deviations = map[string]string{
	"set arguments": "it has the conditions on values that came with Redis 8.4",
	"client|kill arguments": "Redis calls each option of the new format optional and SKIPME's value any string; " +
		"here the grammar is what the parser takes",
	"client|list arguments":             "Redis refuses TYPE together with ID; here the grammar says so",
	"command|getkeys arity":             "since 7.2 a command without arguments may be asked about",
	"command|getkeys arguments":         "Redis 7.0 has none, later ones have these",
	"command|getkeysandflags arity":     "as command|getkeys",
	"command|getkeysandflags arguments": "as command|getkeys",
	"bitop arguments":                   "it names the operations, and has those that came with Redis 8.2",
	"hscan arguments":                   "it has NOVALUES, which came with Redis 7.4",
	"zrank arity":                       "since 7.2 there is WITHSCORE",
	"zrank arguments":                   "as its arity",
	"zrevrank arity":                    "as zrank",
	"zrevrank arguments":                "as zrank",
	"debug arguments":                   "Redis has none",
	"debug doc_flags":                   "the flag syscmd says nothing to a client",
}

// facts are a row's parts as COMMAND INFO and COMMAND DOCS tell them: "set arity" and so
// on. Prose is left out, as Holdfast's is its own, and so are the history
// of options and the order of subcommands.
func facts(info, doc protocol.Value) map[string]string {
	name := info.Elems[0].Str
	all := make(map[string]string)
	for part, i := range map[string]int{
		"arity": 1, "flags": 2, "first": 3, "last": 4, "step": 5, "categories": 6, "tips": 7,
	} {
		all[name+" "+part] = show(info.Elems[i])
	}
	specs := info.Elems[8]
	for i := range specs.Elems {
		specs.Elems[i] = without(specs.Elems[i], "notes")
	}
	all[name+" keys"] = show(specs)
	for i := 0; i < len(doc.Elems); i += 2 {
		switch part := doc.Elems[i].Str; part {
		case "summary", "complexity", "subcommands", "history":
		case "replaced_by":
			all[name+" "+part] = strings.ReplaceAll(show(doc.Elems[i+1]), "`!", "`")
		default:
			all[name+" "+part] = show(doc.Elems[i+1])
		}
	}
	return all
}

// without copies a map, but for one key.
func without(m protocol.Value, key string) protocol.Value {
	var elems []protocol.Value
	for i := 0; i < len(m.Elems); i += 2 {
		if m.Elems[i].Str != key {
			elems = append(elems, m.Elems[i], m.Elems[i+1])
		}
	}
	return protocol.Map(elems...)
}

func TestRowsAgreeWithRedis(t *testing.T) {
	t.Parallel()
	text := protocoltest.ReadFile(t, redisFacts)
	known := make(map[string]bool) // rows that Redis 7.0.15 has
	theirs := make(map[string]string)
	for line := range strings.Lines(text) {
		row, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		part, value, _ := strings.Cut(rest, " ")
		known[row] = true
		theirs[row+" "+part] = value
	}
	require.Greater(t, len(known), 90)
	ours := make(map[string]string)
	for _, c := range allRows() {
		if known[c.Name] {
			name := [][]byte{[]byte(c.Name)}
			info := protocol.Redis().DescribeCommands(name).Elems[0]
			for fact, value := range facts(info, protocol.Redis().DocumentCommands(name).Elems[1]) {
				ours[fact] = value
			}
		}
	}
	differ := make(map[string]bool)
	for _, fact := range slices.Sorted(mapKeys(theirs, ours)) {
		if ours[fact] == theirs[fact] {
			continue
		}
		differ[fact] = true
		require.NotEmpty(t, deviations[fact], "%s\nours: %s\ntheirs: %s", fact, ours[fact], theirs[fact])
	}
	for fact := range deviations {
		require.True(t, differ[fact], "%s does not differ any more", fact)
	}
}

// mapKeys are the keys of both maps.
func mapKeys(a, b map[string]string) func(func(string) bool) {
	all := make(map[string]bool)
	for k := range a {
		all[k] = true
	}
	for k := range b {
		all[k] = true
	}
	return func(yield func(string) bool) {
		for k := range all {
			if !yield(k) {
				return
			}
		}
	}
}

func TestDifferentialFacts(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	conn := redis.dial(t)
	var lines []string
	for _, c := range allRows() {
		info := conn.ask(t, split("command info "+c.Name)).Elems[0]
		if info.IsNull() {
			continue // newer than that server
		}
		doc := conn.ask(t, split("command docs "+c.Name)).Elems[1]
		all := facts(info, doc)
		for _, fact := range slices.Sorted(mapKeys(all, nil)) {
			lines = append(lines, fact+" "+all[fact]+"\n")
		}
	}
	text := strings.Join(lines, "")
	if os.Getenv("HOLDFAST_REWRITE") != "" {
		require.NoError(t, os.WriteFile(redisFacts, []byte(text), 0o644))
	}
	want := protocoltest.ReadFile(t, redisFacts)
	require.Equal(t, want, text)
}

func TestDifferentialConversations(t *testing.T) {
	t.Parallel()
	conn := startRedis(t).dial(t)
	for _, c := range conversations {
		if !strings.HasPrefix(c.line, "!") {
			require.Equal(t, c.reply, show(conn.ask(t, split(c.line))), c.line)
		}
	}
}

// Redis takes every line that the grammar allows.
func TestDifferentialGrammar(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	g := protocoltest.New(2)
	for _, c := range allRows() {
		if c.Subcommands != nil || redis.dial(t).ask(t, split("command info "+c.Name)).Elems[0].IsNull() {
			continue
		}
		switch c.Name {
		case "client|reply", "debug": // the one is not answered, the other is refused
			continue
		case "command|getkeys", "command|getkeysandflags": // take less than in 7.0
			continue
		case "acl|dryrun": // wants a whole command at its end
			continue
		}
		for range 40 {
			line := g.Line(c)
			if c.Name == "set" && strings.Contains(strings.ToLower(fmt.Sprintf("%q", line)), `"if`) {
				continue // conditions of Redis 8.4
			}
			if strings.Contains(strings.ToLower(fmt.Sprintf("%q", line)), `"weights"`) {
				continue // as many as there are keys, which the grammar cannot say
			}
			if beyondGrammar(c.Name, strings.Fields(strings.ToLower(string(bytes.Join(line, []byte(" ")))))) {
				continue
			}
			conn := redis.dial(t)
			conn.ask(t, split("flushall"))
			var reply protocol.Value
			if c.Has(protocol.FlagBlocking) {
				conn.ask(t, split("multi")) // where it does not wait
				conn.ask(t, line)
				reply = conn.ask(t, split("exec")).Elems[0]
			} else {
				reply = conn.ask(t, line)
			}
			if reply.IsError() {
				require.NotContains(t, reply.Str, "syntax", "%q", line)
				require.NotContains(t, reply.Str, "wrong number", "%q", line)
				require.NotContains(t, reply.Str, "unknown", "%q", line)
				require.NotContains(t, reply.Str, "out of range", "%q", line)
			}
		}
	}
}

// beyondGrammar reports whether Redis 7.0 refuses words that the grammar allows.
func beyondGrammar(name string, words []string) bool {
	has := func(word string) bool { return slices.Contains(words, word) }
	switch name {
	case "bitop":
		return has("diff") || has("diff1") || has("andor") || has("one") // operations of Redis 8.2
	case "setbit":
		return words[len(words)-1] > "1" // no bit
	case "zrank", "zrevrank":
		return has("withscore") // of Redis 7.2
	case "zrange", "zrangestore":
		// Without BY a range is of integers and has no LIMIT; names come without scores.
		return !has("byscore") && !has("bylex") || has("bylex") && has("withscores")
	}
	return false
}

func TestDifferentialMatch(t *testing.T) {
	t.Parallel()
	conn := startRedis(t).dial(t)
	names := []string{
		"", "a", "A", "b", "abc", "ABC", "a*c", `a\c`, "[a]", "]", "-", "^", "a-c", "lock:1", "\xff",
		"aaaaaaaaab",
	}
	for _, s := range names {
		conn.ask(t, [][]byte{[]byte("set"), []byte(s), nil})
	}
	for _, p := range []string{
		"*", "**", "?", "??", "", "a*", "*a", "*b*", "[abc]", "[a", "[", "[^", "[^a]", "[]", "[^]", "[a-c]", "[c-a]", "[a-]",
		"[-a]",
		`\a`, `\`, `a\`, `a\*c`, `[\]]`, `[\`, `[a\-c]`, `a\\c`, "[[]a]", "lock:[0-9]", "lock:?", "[a-\xff]", "[^\xff]",
		"*[", "a*a*a*b", "***a***",
	} {
		var want, got []string
		for _, e := range conn.ask(t, [][]byte{[]byte("keys"), []byte(p)}).Elems {
			want = append(want, e.Str)
		}
		for _, s := range names {
			if p == "*" || protocol.Match(p, s, false) { // as commands on keys do
				got = append(got, s)
			}
		}
		require.ElementsMatch(t, want, got, "%q", p)
	}
}

// redisServer is a redis-server that listens on a unix socket.
type redisServer struct{ socket string }

func startRedis(t *testing.T) *redisServer {
	t.Helper()
	return &redisServer{socket: protocoltest.StartRedis(t)}
}

// redisConn is a RESP3 connection to a real server.
type redisConn struct {
	net.Conn
	in *bufio.Reader
}

func (s *redisServer) dial(t *testing.T) *redisConn {
	t.Helper()
	conn, err := net.Dial("unix", s.socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	c := &redisConn{Conn: conn, in: bufio.NewReader(conn)}
	c.ask(t, split("hello 3"))
	return c
}

func (c *redisConn) ask(t *testing.T, line [][]byte) protocol.Value {
	t.Helper()
	elems := make([]protocol.Value, len(line))
	for i, w := range line {
		elems[i] = protocol.Bulk(string(w))
	}
	_, err := c.Write(protocol.Array(elems...).AppendTo(nil, protocol.RESP2))
	require.NoError(t, err)
	v, err := protocol.ReadValue(c.in)
	require.NoError(t, err)
	return v
}
