package fsm

import (
	"fmt"
	"math/rand"
	randv2 "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// scoredGenerator generates mostly valid command lines for lists and sorted sets: the generator of generate_test.go
// rarely makes a valid range or count.
type scoredGenerator struct {
	*protocoltest.Generator
	floats *generator
	rows   []*protocol.Command
	row    *protocol.Command // of the present line
	sortBy string            // the kind of its range
}

func newScoredGenerator(seed int64) *scoredGenerator {
	g := &scoredGenerator{
		Generator: protocoltest.New(uint64(seed)), floats: &generator{rng: rand.New(rand.NewSource(seed))},
	}
	g.Key, g.Value = g.key, g.value
	rows := protocol.Commands()
	for i := range rows {
		row := &rows[i]
		scored := row.Group == protocol.GroupSortedSet || row.Group == protocol.GroupList
		if scored && !row.Has(protocol.FlagBlocking) && row.Name != "sort" && row.Name != "sort_ro" {
			g.rows = append(g.rows, row)
		}
	}
	for name, times := range map[string]int{
		"zadd": 8, "rpush": 3, "lpush": 3, "sadd": 1, "setnx": 1, "del": 1, "copy": 1, "rename": 1, "expire": 1, "type": 1,
		"object|encoding": 1,
	} {
		row, _ := protocol.Lookup(name)
		g.rows = append(g.rows, slices.Repeat([]*protocol.Command{row}, times)...)
	}
	slices.SortStableFunc(g.rows, func(a, b *protocol.Command) int { return strings.Compare(a.Name, b.Name) })
	return g
}

// key returns mostly a key of the command's kind.
func (g *scoredGenerator) key(r *randv2.Rand) string {
	keys := []string{"z", "z2", "z3", "big", "l", "l3", "set", "string", "none"}
	switch lexical := strings.HasSuffix(g.row.Name, "lex") || g.sortBy == "lex"; {
	case r.IntN(4) == 0:
	case lexical:
		keys = []string{"z", "z2", "lex", "lex"}
	case g.row.Group == protocol.GroupList:
		keys = []string{"l", "l", "l2", "l2", "l3"}
	case g.row.Group == protocol.GroupSortedSet:
		keys = []string{"z", "z", "z2", "z2", "z3", "big"}
	}
	return keys[r.IntN(len(keys))]
}

// value returns a valid value for the command, or nearly one.
func (g *scoredGenerator) value(r *randv2.Rand, arg *protocol.Arg) (value string, ok bool) {
	of := func(words ...string) string { return words[r.IntN(len(words))] }
	score := func() string {
		switch r.IntN(4) {
		case 0:
			return g.floats.float()
		case 1:
			return of("inf", "-inf", "+inf", "-0", "0", "nan", "1e308", "1e-320", "9007199254740993", "4611686018427387904",
				"1e17", "x", "")
		}
		return strconv.Itoa(r.IntN(12) - 3)
	}
	switch arg.Name {
	case "member":
		return of("a", "b", "c", "d", "e", "f", "10", "-1", "", "aa", "m7", "m100", strings.Repeat("x", 64),
			strings.Repeat("y", 30)), true
	case "element", "pivot":
		return of("a", "b", "c", "1", "2", "-300", "", strings.Repeat("v", 100)), true
	case "score", "weight":
		return score(), true
	case "increment":
		return score(), g.row.Group == protocol.GroupSortedSet
	case "min", "max", "start", "stop":
		switch {
		case strings.HasSuffix(g.row.Name, "lex") || g.sortBy == "lex":
			return of("-", "+", "[a", "(b", "[d", "(f", "[", "(", "[10", "(m3", "a", "", "-x", "+\x00y", "[~"), true
		case strings.HasSuffix(g.row.Name, "score") || g.sortBy == "score" || g.row.Name == "zcount":
			return of("", "", "(") + of(score(), "-inf", "+inf", " 1", "1 ", "1\x00x", "1e400", "(1"), true
		}
		return of("0", "1", "2", "-1", "-2", "-3", "5", "100", "-100", "9223372036854775807", "-9223372036854775808",
			"x"), true
	case "index", "rank", "offset":
		return of("0", "1", "2", "-1", "-2", "5", "100", "-100", "9223372036854775807", "-9223372036854775808", "x"), true
	case "count", "len", "limit":
		if g.row.Name == "zrandmember" {
			return "100000", true // all elements
		}
		return of("0", "1", "2", "3", "100", "-1", "x"), true
	case "seconds":
		return "1000", true
	case "destination-db":
		return "0", true
	case "pattern":
		return of("*", "m*", "[a-c]"), true
	}
	return "", false
}

func (g *scoredGenerator) next() []string {
	g.row = g.rows[g.Rand.IntN(len(g.rows))]
	if g.sortBy = ""; g.row.Name == "zrange" || g.row.Name == "zrangestore" {
		g.sortBy = []string{"", "score", "lex"}[g.Rand.IntN(3)]
	}
	var words []string
	for _, word := range g.Line(g.row) {
		words = append(words, string(word))
	}
	words[0] = strings.ToLower(words[0])
	if words[0] == "expire" {
		words = words[:3] // the condition depends on the time
	}
	switch g.Rand.IntN(40) {
	case 0:
		words = append(words, []string{"foo", "1", "WITHSCORES", "LIMIT", "COUNT"}[g.Rand.IntN(5)])
	case 1:
		words = words[:len(words)-1]
	}
	return tame(words)
}

// fillScored creates a sorted set that is a skiplist, and a long list, on both servers.
func fillScored(r *protocoltest.Redis, d *driver) {
	words, names, list := []string{"zadd", "big"}, []string{"zadd", "lex"}, []string{"rpush", "l2"}
	for i := range 150 {
		names = append(names, "0", strconv.Itoa(i)+"m")
		words = append(words, strconv.Itoa(i/3), "m"+strconv.Itoa(i))
		list = append(list, strings.Repeat("e", i%90))
	}
	for _, words := range [][]string{words, names, list} {
		r.Do(words...)
		d.do(words...)
	}
}

// unclear reports whether Redis has no well-defined reply to a command line, or another reply since 7.2. BYLEX has none
// for a large sorted set whose members have different scores.
func unclear(d *driver, words []string) bool {
	switch words[0] {
	case "zrandmember":
		return len(words) < 3 || words[2] != "100000"
	case "zrank", "zrevrank", "lpos", "lrem", "lset":
		return misread(words)
	}
	has := func(token string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.EqualFold(w, token) })
	}
	if has("BYLEX") || strings.Contains(words[0], "lex") {
		for _, key := range words[1:min(3, len(words))] {
			if key != "lex" && (has("LIMIT") || d.do("object", "encoding", key).Str == "skiplist") {
				return true
			}
		}
	}
	return false
}

// inScript wraps a command line in a script that uses a version of RESP.
func inScript(words []string, resp int) []string {
	script := fmt.Sprintf("redis.setresp(%d) return redis.pcall(unpack(ARGV))", resp)
	return append([]string{"eval", script, "0"}, words...)
}

// TestDifferentialScored compares lists and sorted sets.
func TestDifferentialScored(t *testing.T) {
	r := startRedis(t)
	for _, resp := range []int{protocol.RESP2, protocol.RESP3} {
		t.Run(fmt.Sprintf("RESP%d", resp), func(t *testing.T) {
			r.T = t
			r.Do("HELLO", strconv.Itoa(resp))
			for seed := range int64(12) {
				differentialScored(t, r, seed, resp)
			}
		})
	}
}

func differentialScored(t *testing.T, r *protocoltest.Redis, seed int64, resp int) {
	release := releaseOf(r)
	g := newScoredGenerator(seed)
	d := newDriver(t)
	require.Equal(t, "+OK\r\n", r.Do("FLUSHALL"))
	var history []string
	for i := range 1500 {
		if i%300 == 0 {
			fillScored(r, d)
		}
		words := g.next()
		if unclear(d, words) || otherNumbers(release, words) {
			continue
		}
		sent := words
		if g.Rand.IntN(4) == 0 {
			sent = inScript(words, 2+g.Rand.IntN(2))
		}
		history = append(history, quote(sent))
		want, got := r.Do(sent...), string(d.do(sent...).AppendTo(nil, resp))
		if want == got || modern(want) == modern(got) {
			continue
		}
		if words[0] == "zscan" && slices.Equal(sortedWords(modern(want)), sortedWords(modern(got))) ||
			words[0] == "object" && alike(words, want, got) {
			continue
		}
		from := max(0, len(history)-25)
		t.Fatalf("seed %d: %s\nredis:    %q\nholdfast: %q\nhistory:\n%s", seed, quote(sent), want, got,
			strings.Join(history[from:], "\n"))
	}
}
