package protocoltest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// Generator makes random command lines, for a single goroutine.
type Generator struct {
	// Rand is where all choices come from; seed Rand to get the same lines again.
	Rand *rand.Rand
	// Key makes a key; without it, keys are key:0 to key:7, few enough to be met again.
	Key func(*rand.Rand) string
	// Value makes the value of the argument with this name, or returns false and leaves the value
	// to the generator. Without Value all values are the generator's.
	Value func(r *rand.Rand, arg *protocol.Arg) (value string, ok bool)
}

// New is a generator whose lines follow from the seed.
func New(seed uint64) *Generator { return &Generator{Rand: rand.New(rand.NewPCG(seed, seed))} }

// Line makes a command line of the row, the words of the name first.
func (g *Generator) Line(c *protocol.Command) [][]byte {
	l := line{Generator: g}
	for word := range strings.SplitSeq(c.Name, "|") {
		l.add(g.anyCase(word))
	}
	l.addAll(c.Args)
	if l.count > 0 {
		l.words[l.count] = strconv.AppendInt(nil, int64(l.keys), 10)
	}
	return l.words
}

// line is a command line in the making.
type line struct {
	*Generator
	words [][]byte
	keys  int // keys so far that count
	count int // where the number of keys belongs; 0 is nowhere
}

func (l *line) add(word string) { l.words = append(l.words, []byte(word)) }

// addAll adds the arguments in order, but options, which Redis takes in any order,
// among themselves in any.
func (l *line) addAll(args []protocol.Arg) {
	for len(args) > 0 {
		n := 0
		for n < len(args) && isOption(&args[n]) {
			n++
		}
		for _, i := range l.Rand.Perm(n) {
			l.addMaybe(&args[i])
		}
		if n < len(args) {
			l.addMaybe(&args[n])
			n++
		}
		args = args[n:]
	}
}

// isOption reports whether words of the argument are known by their tokens, so
// that their order is free.
func isOption(a *protocol.Arg) bool {
	if !a.Optional {
		return false
	}
	if a.Token != "" {
		return true
	}
	for i := range a.Args {
		if a.Args[i].Token == "" {
			return false
		}
	}
	return a.Type == protocol.ArgOneOf
}

func (l *line) addMaybe(a *protocol.Arg) {
	if a.Optional && l.Rand.IntN(2) == 0 {
		return
	}
	times := 1
	if a.Multiple {
		times += l.Rand.IntN(3)
	}
	for i := range times {
		if a.Token != "" && (i == 0 || a.MultipleToken) {
			l.add(l.anyCase(a.Token))
		}
		l.addOnce(a)
	}
}

func (l *line) addOnce(a *protocol.Arg) {
	switch a.Type {
	case protocol.ArgPureToken: // its token is all of it
	case protocol.ArgOneOf:
		l.addMaybe(&a.Args[l.Rand.IntN(len(a.Args))])
	case protocol.ArgBlock:
		l.addAll(a.Args)
	default:
		if a.Name == "numkeys" {
			l.count, l.keys = len(l.words), 0
		}
		if a.Type == protocol.ArgKey {
			l.keys++
		}
		l.add(l.value(a))
	}
}

// anyCase writes a word in lower case, in upper case, or mixed.
func (g *Generator) anyCase(word string) string {
	switch g.Rand.IntN(3) {
	case 0:
		return strings.ToLower(word)
	case 1:
		return strings.ToUpper(word)
	}
	b := []byte(strings.ToLower(word))
	for i := range b {
		if g.Rand.IntN(2) == 0 {
			b[i] = strings.ToUpper(string(b[i]))[0]
		}
	}
	return string(b)
}

func (g *Generator) value(a *protocol.Arg) string {
	if a.Type == protocol.ArgKey && g.Key != nil {
		return g.Key(g.Rand)
	}
	if g.Value != nil {
		if v, ok := g.Value(g.Rand, a); ok {
			return v
		}
	}
	switch a.Type {
	case protocol.ArgKey:
		return "key:" + strconv.Itoa(g.Rand.IntN(8))
	case protocol.ArgInteger, protocol.ArgUnixTime:
		r, ok := ranges[a.Name]
		if !ok {
			r = span{from: 1, to: 100}
		}
		return strconv.FormatInt(r.from+g.Rand.Int64N(r.to-r.from+1), 10)
	case protocol.ArgDouble:
		return strconv.FormatFloat(float64(g.Rand.IntN(2000)-1000)/8, 'f', -1, 64)
	case protocol.ArgPattern:
		return g.pick("*", "key:*", "key:[0-3]", "nothing?")
	}
	return g.text(a.Name)
}

// span is the numbers from…to, both included.
type span struct{ from, to int64 }

// ranges are the numbers that a command takes, by the name of the argument. Unix times are of the
// years 2096 and after, so never past, and waits are short.
var ranges = map[string]span{
	"index":                  {0, 15},
	"index1":                 {0, 15},
	"index2":                 {0, 15},
	"db":                     {0, 15},
	"destination-db":         {0, 15},
	"protover":               {2, 3},
	"cursor":                 {0, 0},
	"start":                  {-10, 10},
	"end":                    {-10, 10},
	"offset":                 {0, 64},
	"increment":              {-1000, 1000},
	"decrement":              {-1000, 1000},
	"milliseconds":           {1, 100_000},
	"unix-time-seconds":      {4_000_000_000, 5_000_000_000},
	"unix-time-milliseconds": {4_000_000_000_000, 5_000_000_000_000},
	"numlocal":               {0, 1},
	"numreplicas":            {0, 2},
	"timeout":                {1, 5},
	"version":                {5, 6},
}

// text makes a string argument: a word with a meaning, or a value.
func (g *Generator) text(name string) string {
	switch name {
	case "script":
		return g.pick("return 1", "return ARGV[1]", "return redis.call('get', KEYS[1] or 'key:0')")
	case "sha1":
		return fmt.Sprintf("%040x", g.Rand.Uint64N(4))
	case "ifdeq-digest", "ifdne-digest":
		return fmt.Sprintf("%016x", g.Rand.Uint64N(4))
	case "ip:port", "addr", "laddr":
		return "127.0.0.1:" + strconv.Itoa(1+g.Rand.IntN(9))
	case "username":
		return "default"
	case "type":
		return "string"
	case "section":
		return g.pick("server", "replication", "all")
	case "category":
		return g.pick("read", "connection")
	case "parameter":
		return g.pick("maxmemory", "*")
	case "command-name", "command":
		return g.pick("get", "eval", "client|id", "none")
	}
	return g.pick("a", "b", "token", "10", "-7", "value"+strconv.Itoa(g.Rand.IntN(4)))
}

func (g *Generator) pick(words ...string) string { return words[g.Rand.IntN(len(words))] }
