package fsm

import (
	"fmt"
	"math/rand"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// generator generates command lines from the table's argument grammars. Keys and values are few, so that commands meet
// each other's effects.
type generator struct {
	rng *rand.Rand
	// wallMillis is the approximate time for arguments that are instants.
	wallMillis int64
	// release excludes everything newer; "" excludes nothing.
	release string
	rows    []*protocol.Command
	// group is the group of the present command.
	group protocol.Group
}

// keysOfKinds are the keys mostly used by commands of a group.
var keysOfKinds = map[protocol.Group][]string{
	protocol.GroupHash: {"hash", "b"}, protocol.GroupList: {"list", "c"},
	protocol.GroupSet: {"set", "sets"}, protocol.GroupSortedSet: {"zset", "zsets"},
}

var (
	generatedKeys   = []string{"a", "b", "c", "counter", "float", "empty", "lock:1", "", "hash", "list", "set", "zset"}
	generatedValues = []string{
		"", "x", "hello", "1", "-1", "007", "3.5", "1e3", "9223372036854775807", "-9223372036854775808",
		"9223372036854775808",
		"token", " 1", "1 ", "+1", "0", "-0", "inf", "nan", "0x10", "3.0e-5", "2d06800538d394c2", "ffffffffffffffff",
		strings.Repeat("v", 44), strings.Repeat("w", 45),
	}
	generatedIntegers = []string{
		"0", "1", "2", "-1", "3", "10", "100", "1000000", "-5", "9223372036854775807", "-9223372036854775808",
		"9223372036854775", "9223372036854776", "abc", "", "1.5",
	}
	generatedDurations = []string{
		"0", "-1", "-5", "9223372036854775807", "-9223372036854775808", "9223372036854775", "9223372036854776", "abc", "",
		"1.5", "+1",
	}
	generatedPatterns = []string{"*", "a*", "lock:*", "[a-c]", "?", "counter", "*o*", `\*`, "[^a]*"}
	generatedScripts  = []string{
		"return redis.call('get',KEYS[1])",
		"if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end",
		"return redis.call('set',KEYS[1],ARGV[1])",
		"return redis.pcall('incr',KEYS[1])",
		"return redis.call('incr',KEYS[1])",
		"return {1,2,{3,'x',false},nil,5}",
		"return redis.error_reply('MY error')",
		"return redis.status_reply('fine')",
		"redis.call('select','1'); return redis.call('exists','a')",
		"return #ARGV",
		"return redis.call('nosuch')",
		"return x..y",
	}
)

// newGenerator uses the commands that the state machine implements.
func newGenerator(seed int64, release string, skip ...string) *generator {
	g := &generator{rng: rand.New(rand.NewSource(seed)), wallMillis: 1_700_000_000_000, release: release}
	rows := protocol.Commands()
	for i := range rows {
		g.add(&rows[i], skip)
		for j := range rows[i].Subcommands {
			g.add(&rows[i].Subcommands[j], skip)
		}
	}
	return g
}

func (g *generator) add(row *protocol.Command, skip []string) {
	if row.Group == protocol.GroupModule && g.release != "" {
		return
	}
	if row.Route != protocol.Local && g.known(row.Since) && !slices.Contains(skip, row.Name) {
		g.rows = append(g.rows, row)
	}
}

func (g *generator) known(since string) bool {
	return g.release == "" || since == "" || compareReleases(since, g.release) <= 0
}

func compareReleases(a, b string) int {
	numbers := func(s string) []int {
		var ns []int
		for part := range strings.SplitSeq(s, ".") {
			n, _ := strconv.Atoi(part)
			ns = append(ns, n)
		}
		return ns
	}
	return slices.Compare(numbers(a), numbers(b))
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.Intn(len(from))] }

// next returns a random command line, which is sometimes wrong.
func (g *generator) next() []string {
	row := pick(g.rng, g.rows)
	g.group = row.Group
	words := strings.Split(row.Name, "|")
	switch row.Name {
	case "eval", "eval_ro", "evalsha", "evalsha_ro":
		words = append(words, g.scriptWords(row.Name)...)
	case "msetex":
		words = append(words, g.msetexWords(row)...)
	case "lock.acquireall", "lock.releaseall", "sintercard", "lmpop", "zmpop", "zunion", "zinter", "zdiff", "zunionstore",
		"zinterstore", "zdiffstore", "zintercard":
		words = append(words, g.numbered(row)...)
	default:
		for i := range row.Args {
			words = g.arg(words, &row.Args[i])
		}
	}
	switch g.rng.Intn(20) {
	case 0:
		words = append(words, pick(g.rng, []string{"NX", "XX", "GT", "foo", "EX", "10", "GET", "\r\n"}))
	case 1:
		if len(words) > 2 {
			words = words[:len(words)-1]
		}
	case 2:
		i := g.rng.Intn(len(words))
		words[i] = strings.ToUpper(words[i])
	}
	return words
}

func (g *generator) scriptWords(name string) []string {
	script := pick(g.rng, generatedScripts)
	if strings.HasPrefix(name, "evalsha") {
		script = scriptSHA(script)
	}
	words := []string{script, pick(g.rng, []string{"1", "1", "1", "0", "2", "-1", "x"})}
	for range g.rng.Intn(4) {
		words = append(words, pick(g.rng, generatedKeys))
	}
	return words
}

func (g *generator) msetexWords(row *protocol.Command) []string {
	n := 1 + g.rng.Intn(3)
	words := []string{strconv.Itoa(n)}
	for range n {
		words = append(words, pick(g.rng, generatedKeys), pick(g.rng, generatedValues))
	}
	for i := range row.Args {
		if row.Args[i].Optional {
			words = g.arg(words, &row.Args[i])
		}
	}
	return words
}

// arg appends valid words for an argument.
func (g *generator) arg(words []string, a *protocol.Arg) []string {
	if !g.known(a.Since) || a.Optional && g.rng.Intn(3) > 0 {
		return words
	}
	words = g.one(words, a)
	for a.Multiple && g.rng.Intn(2) == 0 {
		words = g.one(words, a)
	}
	return words
}

func (g *generator) one(words []string, a *protocol.Arg) []string {
	if a.Token != "" {
		words = append(words, a.Token)
	}
	switch a.Type {
	case protocol.ArgPureToken:
	case protocol.ArgOneOf:
		choices := slices.DeleteFunc(slices.Clone(a.Args), func(c protocol.Arg) bool { return !g.known(c.Since) })
		choice := pick(g.rng, choices)
		words = g.one(words, &choice)
	case protocol.ArgBlock:
		for i := range a.Args {
			words = g.arg(words, &a.Args[i])
		}
	default:
		words = append(words, g.value(a))
	}
	return words
}

func (g *generator) value(a *protocol.Arg) string {
	switch a.Type {
	case protocol.ArgKey:
		// The key is mostly of the command's kind.
		if own := keysOfKinds[g.group]; own != nil && g.rng.Intn(4) > 0 {
			return pick(g.rng, own)
		}
		return pick(g.rng, generatedKeys)
	case protocol.ArgPattern:
		return pick(g.rng, generatedPatterns)
	case protocol.ArgUnixTime:
		return g.instant(a.Name)
	case protocol.ArgInteger:
		return g.integer(a.Name)
	case protocol.ArgDouble:
		return pick(g.rng, generatedValues)
	}
	switch {
	case a.Name == "script":
		return pick(g.rng, generatedScripts)
	case a.Name == "owner":
		return pick(g.rng, []string{"me", "you", "them"})
	case strings.HasPrefix(a.Name, "sha1"):
		return scriptSHA(pick(g.rng, generatedScripts))
	}
	return pick(g.rng, generatedValues)
}

// integer returns mostly a plausible integer. Durations are long, so that expiry does not depend on a test's speed, and
// all different.
func (g *generator) integer(name string) string {
	if g.rng.Intn(6) == 0 {
		if strings.Contains(name, "seconds") {
			return pick(g.rng, generatedDurations)
		}
		return pick(g.rng, generatedIntegers)
	}
	switch {
	case name == "session-id", name == "limit", name == "permits", name == "fence":
		return strconv.Itoa(1 + g.rng.Intn(5))
	case strings.Contains(name, "milliseconds"):
		return strconv.Itoa(1_000_000 + g.rng.Intn(1_000_000_000))
	case strings.Contains(name, "seconds"):
		return strconv.Itoa(1_000 + g.rng.Intn(1_000_000))
	case strings.HasPrefix(name, "db"), strings.HasPrefix(name, "index"), strings.HasPrefix(name, "destination-db"):
		return strconv.Itoa(g.rng.Intn(3))
	}
	return strconv.Itoa(g.rng.Intn(30) - 10)
}

func (g *generator) instant(name string) string {
	if g.rng.Intn(6) == 0 {
		return pick(g.rng, generatedIntegers)
	}
	millis := g.wallMillis + 1_000_000 + g.rng.Int63n(1_000_000_000)
	if g.rng.Intn(8) == 0 {
		millis = g.wallMillis - 1_000_000 - g.rng.Int63n(1_000_000)
	}
	if strings.Contains(name, "milliseconds") {
		return strconv.FormatInt(millis, 10)
	}
	return strconv.FormatInt(millis/1000, 10)
}

// quote formats a command line for messages.
func quote(words []string) string {
	parts := make([]string, len(words))
	for i, w := range words {
		parts[i] = fmt.Sprintf("%q", w)
	}
	return strings.Join(parts, " ")
}
