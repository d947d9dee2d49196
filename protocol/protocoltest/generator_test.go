package protocoltest

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

func row(t *testing.T, name string) *protocol.Command {
	t.Helper()
	c, ok := protocol.Lookup(name)
	require.True(t, ok, name)
	return c
}

func text(line [][]byte) string {
	var b strings.Builder
	for _, w := range line {
		b.WriteString(strconv.Quote(string(w)) + " ")
	}
	return b.String()
}

func TestLinesFollowFromTheSeed(t *testing.T) {
	t.Parallel()
	one, same, other := New(7), New(7), New(8)
	differ := false
	for range 50 {
		line := text(one.Line(row(t, "set")))
		require.Equal(t, line, text(same.Line(row(t, "set"))))
		differ = differ || line != text(other.Line(row(t, "set")))
	}
	require.True(t, differ)
}

// Every option of a row comes up, in more than one order and case.
func TestLinesReachTheGrammar(t *testing.T) {
	t.Parallel()
	g := New(1)
	seen := make(map[string]bool)
	getFirst, getLast := false, false
	for range 2000 {
		line := g.Line(row(t, "set"))
		for _, w := range line[3:] {
			seen[strings.ToUpper(string(w))] = true
		}
		if len(line) == 6 {
			getFirst = getFirst || strings.EqualFold(string(line[3]), "get") && strings.EqualFold(string(line[4]), "ex")
			getLast = getLast || strings.EqualFold(string(line[5]), "get")
		}
	}
	for _, token := range []string{
		"NX", "XX", "IFEQ", "IFNE", "IFDEQ", "IFDNE", "GET", "EX", "PX", "EXAT", "PXAT",
		"KEEPTTL",
	} {
		require.True(t, seen[token], token)
	}
	require.True(t, getFirst && getLast)
}

func TestKeysAreCounted(t *testing.T) {
	t.Parallel()
	g := New(3)
	for range 200 {
		line := g.Line(row(t, "msetex"))
		n, err := strconv.Atoi(string(line[1]))
		require.NoError(t, err)
		require.Positive(t, n)
		require.GreaterOrEqual(t, len(line), 2+2*n, text(line))
		for i := range n {
			require.True(t, strings.HasPrefix(string(line[2+2*i]), "key:"), text(line))
		}
		require.False(t, 2+2*n < len(line) && strings.HasPrefix(string(line[2+2*n]), "key:"), text(line))
	}
}

func TestHooks(t *testing.T) {
	t.Parallel()
	g := New(4)
	g.Key = func(*rand.Rand) string { return "mine" }
	g.Value = func(_ *rand.Rand, a *protocol.Arg) (string, bool) { return "token-1", a.Name == "value" }
	line := g.Line(row(t, "setex"))
	require.Equal(t, "mine", string(line[1]))
	require.Equal(t, "token-1", string(line[3]))
	require.NotEqual(t, "token-1", string(line[2]))
}
