package virtual

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/servertest"
)

// requireRedisErrors checks errors of Redis 7.0. The tests of packages frontend and fsm compare many more with a real
// server.
func requireRedisErrors(t *testing.T, conn *servertest.Client) {
	defer conn.Close()
	for _, row := range []struct{ command, want string }{
		{"NOSUCH a b", "ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' "},
		{"GET", "ERR wrong number of arguments for 'get' command"},
		{"SET k v PX", "ERR syntax error"},
		{"SET k v PX 0", "ERR invalid expire time in 'set' command"},
		{"SET k v PX x", "ERR value is not an integer or out of range"},
		{"SET k v NX XX", "ERR syntax error"},
		{"SELECT 16", "ERR DB index is out of range"},
		{"EXEC", "ERR EXEC without MULTI"},
		{"EVALSHA ffffffffffffffffffffffffffffffffffffffff 0", "NOSCRIPT No matching script. Please use EVAL."},
		{"EVAL return", "ERR wrong number of arguments for 'eval' command"},
		{"EVAL return -1", "ERR Number of keys can't be negative"},
		{"EVAL return 2 k", "ERR Number of keys can't be greater than number of args"},
		{"HELLO 4", "NOPROTO unsupported protocol version"},
	} {
		v, err := conn.Do(strings.Split(row.command, " ")...)
		require.NoError(t, err)
		require.Equal(t, row.want, v.Str, row.command)
	}
	for _, command := range [][]string{{"SET", "word", "abc"}, {"SET", "big", "9223372036854775807"}} {
		_, err := conn.Do(command...)
		require.NoError(t, err)
	}
	v, err := conn.Do("INCR", "word")
	require.NoError(t, err)
	require.Equal(t, "ERR value is not an integer or out of range", v.Str)
	v, err = conn.Do("INCR", "big")
	require.NoError(t, err)
	require.Equal(t, "ERR increment or decrement would overflow", v.Str)
}

// vandalise sends random commands and random bytes to all nodes.
func vandalise(t *testing.T, c *servertest.Cluster, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	rows := dataCommands()
	nodes := c.Nodes()
	conn := c.Client(nodes[0], 2)
	answers := 0
	for i := range 1500 {
		if i%10 == 0 {
			conn.Close()
			conn = c.Client(nodes[rng.IntN(len(nodes))], 2+rng.IntN(2))
		}
		if i%50 == 0 {
			_ = conn.Raw(randomBytes(rng))
			conn.Close()
			continue
		}
		_, err := conn.Do(randomCommand(rng, rows)...)
		if err == nil {
			answers++
			continue
		}
		require.False(t, errors.Is(err, servertest.ErrRefused), "a node refuses connections")
		conn.Close()
	}
	conn.Close()
	require.Greater(t, answers, 1000, "hardly anything was answered")
}

func dataCommands() []protocol.Command {
	var rows []protocol.Command
	for _, row := range protocol.Commands() {
		if row.Route != protocol.Local {
			rows = append(rows, row)
		}
	}
	return rows
}

// badWords are arguments that programs often mishandle.
var badWords = []string{
	"", " ", "0", "-1", "1", "00", "+1", "1.5", "1e400", "nan", "-inf", "9223372036854775807", "-9223372036854775808",
	"9223372036854775808",
	"18446744073709551616", "*", "[", "[^", "\\", "a*a*a*a*a*b", "k", "K", "k\r\n", "\x00", "\xff\xfe", "NX", "XX", "GT",
	"LT", "GET", "EX", "PX", "EXAT", "PXAT",
	"KEEPTTL", "IFEQ", "PERSIST", "MATCH", "COUNT", "REPLACE", "DB", "ASYNC", "SYNC", "WITHSCORES", "DEFAULT",
	strings.Repeat("x", 5000), strings.Repeat("9", 400), "return 1", "return redis.call('SET',KEYS[1],'x')",
	"while true do end",
	"return string.rep('x', 1e9)", "return redis.call('INCR','k')", "error('no')", "return {1,{2,{3}}}",
	"local t = {} t[1e15] = 1 return #t", "(((((",
	"return redis.call('TIME')", "for i=1,1e6 do redis.call('INCR','k') end", "return tostring({})",
	"return math.random()", "\x1bLua",
}

func randomCommand(rng *rand.Rand, rows []protocol.Command) []string {
	words := strings.Split(rows[rng.IntN(len(rows))].Name, "|")
	for range rng.IntN(7) {
		words = append(words, badWords[rng.IntN(len(badWords))])
	}
	return words
}

func randomBytes(rng *rand.Rand) []byte {
	b := make([]byte, rng.IntN(300))
	for i := range b {
		b[i] = "*$:+-\r\n0123456789GETSr\x00\xff\""[rng.IntN(25)]
	}
	return b
}
