package fsm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast/holdfast/protocol"
)

// collectionGroups are the groups of commands on collections, and of commands on any key.
var collectionGroups = []protocol.Group{
	protocol.GroupHash, protocol.GroupSet, protocol.GroupList, protocol.GroupSortedSet, protocol.GroupBitmap,
}

var anyKind = []string{
	"del", "exists", "type", "copy", "rename", "set", "get", "expire", "persist", "object|encoding",
	"flushdb",
}

// TestDifferentialFamilies sends command lines of one family: in RESP2, in RESP3, and some from scripts.
func TestDifferentialFamilies(t *testing.T) {
	r := startRedis(t)
	for _, family := range collectionGroups {
		for _, resp := range []int{protocol.RESP2, protocol.RESP3} {
			t.Run(fmt.Sprintf("%s in RESP%d", family, resp), func(t *testing.T) {
				r.T = t
				r.Do("HELLO", strconv.Itoa(resp))
				for seed := range int64(seeds) {
					differential(t, r, 1000+seed, resp, func(row *protocol.Command) bool {
						return row.Group == family || slices.Contains(anyKind, row.Name)
					})
				}
			})
		}
	}
}

// TestDifferentialSort compares SORT on generated values.
func TestDifferentialSort(t *testing.T) {
	r := startRedis(t)
	makes := []string{"sadd", "rpush", "zadd", "set", "mset", "hset", "del", "flushdb", "lrange"}
	for _, resp := range []int{protocol.RESP2, protocol.RESP3} {
		t.Run(fmt.Sprintf("RESP%d", resp), func(t *testing.T) {
			r.T = t
			r.Do("HELLO", strconv.Itoa(resp))
			for seed := range int64(seeds) {
				differential(t, r, 2000+seed, resp, func(row *protocol.Command) bool {
					return row.Name == "lcs" || strings.HasPrefix(row.Name, "sort") || slices.Contains(makes, row.Name)
				})
			}
		})
	}
}

// unordered are commands whose replies have no order that Redis promises.
var unordered = []string{
	"keys", "scan", "hscan", "sscan", "zscan", "hgetall", "hkeys", "hvals", "smembers", "sinter", "sunion", "sdiff",
}

// drawing are commands with random replies.
var drawing = []string{"hrandfield", "srandmember", "zrandmember", "spop"}

// timely are commands whose replies depend on the time.
var timely = []string{"ttl", "pttl", "expiretime", "pexpiretime"}

// newer are commands that have changed since Redis 7.0: see excused.
var newer = []string{"bitcount", "bitpos", "sort", "sort_ro"}

// tame changes a scan to begin at 0, the only cursor common to both servers, and to return everything, by a last COUNT.
func tame(words []string) []string {
	at := 2
	switch words[0] {
	case "scan":
		at = 1
	case "hscan", "sscan", "zscan":
	default:
		return words
	}
	if len(words) <= at {
		return words
	}
	if _, ok := protocol.ParseInt(words[at]); ok || words[at] == "" { // 7.0 parses it as a cursor
		words[at] = "0"
	}
	return append(words, "count", "1000")
}

// scripted returns a command line, sometimes wrapped in a script.
func (g *generator) scripted(words []string) []string {
	row, _ := protocol.Find(words)
	if row == nil || !slices.Contains(collectionGroups, row.Group) || g.rng.Intn(4) > 0 {
		return words
	}
	script := pick(g.rng, []string{"return redis.call(unpack(ARGV))", "redis.setresp(3) return redis.call(unpack(ARGV))"})
	return append([]string{"eval", script, "0"}, words...)
}

// shape returns the part of a reply that is not random.
func shape(reply string) string {
	head, _, _ := strings.Cut(reply, "\r\n")
	if reply[0] == '$' && head != "$-1" {
		return "$"
	}
	return head
}

// smallSet reports whether both replies are encodings of a small set: a hashtable before Redis 7.2, and then a
// listpack.
func smallSet(want, got string) bool {
	return want == "$9\r\nhashtable\r\n" && got == "$8\r\nlistpack\r\n"
}

// shortString reports whether both replies are encodings of strings.
func shortString(want, got string) bool {
	encodings := []string{"$6\r\nembstr\r\n", "$3\r\nraw\r\n", "$3\r\nint\r\n"}
	return slices.Contains(encodings, want) && slices.Contains(encodings, got)
}

// excused reports whether replies may differ because the release is older than the one that Holdfast follows.
func excused(release string, words []string, want, got string) bool {
	const noScore = "-ERR One or more scores can't be converted into double"
	if words[0] == "sort" || words[0] == "sort_ro" {
		at := func(option string) int {
			return slices.IndexFunc(words, func(w string) bool { return strings.EqualFold(w, option) })
		}
		// Without sorting, or with equal weights, a set has its own order.
		by := at("by")
		if by > 0 && by+1 < len(words) && (!strings.Contains(words[by+1], "*") || at("alpha") > 0) &&
			shape(want) == shape(got) {
			return true
		}
	}
	if compareReleases(release, "8.0") >= 0 {
		return false
	}
	switch words[0] {
	case "bitcount", "bitpos":
		// 7.0 first looks up the key.
		return strings.HasPrefix(got, "-ERR") && (strings.HasPrefix(want, "-WRONGTYPE") || want == ":0\r\n" ||
			want == ":-1\r\n")
	case "sort", "sort_ro":
		// 7.0 accepts blanks and hexadecimal digits, and refuses numbers that are too large.
		return strings.HasPrefix(want, noScore) != strings.HasPrefix(got, noScore)
	}
	return false
}

// otherNumbers reports whether a release of Redis parses scores differently: since 8.0 a score has no leading blank and
// no hexadecimal digits.
func otherNumbers(release string, words []string) bool {
	if compareReleases(release, "8.0") < 0 || !strings.HasPrefix(strings.ToLower(words[0]), "z") {
		return false
	}
	return slices.ContainsFunc(words[1:], func(w string) bool {
		w = strings.TrimPrefix(w, "(")
		return strings.TrimLeft(w, " \t\r\n") != w || strings.ContainsAny(w, "xX")
	})
}

// numbered returns words for a command with a count of keys.
func (g *generator) numbered(row *protocol.Command) []string {
	var words []string
	n := 1 + g.rng.Intn(3)
	for i := range row.Args {
		switch a := &row.Args[i]; {
		case a.Name == "numkeys" && g.rng.Intn(8) == 0:
			words = append(words, pick(g.rng, generatedIntegers))
		case a.Name == "numkeys":
			words = append(words, strconv.Itoa(n))
		case a.Type == protocol.ArgKey && a.Multiple:
			for range n {
				words = append(words, g.value(a))
			}
		default:
			words = g.arg(words, a)
		}
	}
	return words
}
