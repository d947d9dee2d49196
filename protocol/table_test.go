package protocol_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// allRows are the rows of the table, subcommands included.
func allRows() []*protocol.Command {
	var rows []*protocol.Command
	for i := range protocol.Commands() {
		row := &protocol.Commands()[i]
		rows = append(rows, row)
		for j := range row.Subcommands {
			rows = append(rows, &row.Subcommands[j])
		}
	}
	return rows
}

func words(line string) [][]byte { return protocoltest.Args(strings.Fields(line)) }

func TestRowsAreSortedAndUnique(t *testing.T) {
	t.Parallel()
	sorted := func(rows []protocol.Command, prefix string) {
		for i := range rows {
			require.True(t, strings.HasPrefix(rows[i].Name, prefix))
			require.NotContains(t, strings.TrimPrefix(rows[i].Name, prefix), "|")
			if i > 0 {
				require.Less(t, rows[i-1].Name, rows[i].Name)
			}
		}
	}
	sorted(protocol.Commands(), "")
	for _, c := range protocol.Commands() {
		sorted(c.Subcommands, c.Name+"|")
	}
}

func TestRowsReadWell(t *testing.T) {
	t.Parallel()
	release := regexp.MustCompile(`^\d+\.\d+\.\d+$`)
	groups := []protocol.Group{
		protocol.GroupBitmap, protocol.GroupHash, protocol.GroupSet, protocol.GroupList, protocol.GroupSortedSet,
		protocol.GroupString, protocol.GroupGeneric, protocol.GroupScripting,
		protocol.GroupTransactions, protocol.GroupConnection, protocol.GroupServer, protocol.GroupPubSub,
		protocol.GroupCluster,
		protocol.GroupModule,
	}
	for _, c := range allRows() {
		require.Equal(t, strings.ToLower(c.Name), c.Name)
		require.LessOrEqual(t, len(c.Name), 32, c.Name)
		require.Contains(t, groups, c.Group, c.Name)
		require.Regexp(t, release, c.Since, c.Name)
		for _, sentence := range []string{c.Summary, c.Complexity} {
			require.NotEmpty(t, sentence, c.Name)
			require.True(t, unicode.IsUpper(rune(sentence[0])), "%s: %s", c.Name, sentence)
			require.NotContains(t, ".!?", sentence[len(sentence)-1:], "%s: %s", c.Name, sentence)
		}
		if c.Deprecated != nil {
			require.Regexp(t, release, c.Deprecated.Since, c.Name)
			require.NotEmpty(t, c.Deprecated.ReplacedBy, c.Name)
		}
	}
}

func TestRouteAgreesWithFlags(t *testing.T) {
	t.Parallel()
	// Commands that go through the log or look at the state, but are neither write nor read for ACLs.
	writesNoKeys := []string{"script|load", "script|flush", "publish", "spublish"}
	readsNoKeys := []string{"script|exists", "time", "watch", "cluster|countkeysinslot", "cluster|getkeysinslot"}
	for _, c := range allRows() {
		write, read := c.Has(protocol.FlagWrite), c.Has(protocol.FlagReadOnly)
		require.False(t, write && read, c.Name)
		switch c.Route {
		case protocol.Write:
			require.Equal(t, write, !slices.Contains(writesNoKeys, c.Name), c.Name)
			require.False(t, read, c.Name)
		case protocol.Read:
			require.Equal(t, read, !slices.Contains(readsNoKeys, c.Name), c.Name)
			require.False(t, write, c.Name)
		case protocol.Script:
			require.Equal(t, protocol.GroupScripting, c.Group, c.Name)
			require.Equal(t, strings.HasSuffix(c.Name, "_ro"), read, c.Name)
			require.False(t, write, c.Name)
		case protocol.Local:
			require.Equal(t, c.Name == "ssubscribe" || c.Name == "sunsubscribe", len(c.KeySpecs) > 0, c.Name)
			require.False(t, write, c.Name)
			require.Equal(t, c.Name == "lolwut", read, c.Name)
		}
		if strings.HasSuffix(c.Name, "|help") || c.Subcommands != nil {
			require.Equal(t, protocol.Local, c.Route, c.Name)
		}
		if c.Subcommands != nil {
			require.Empty(t, c.Args, c.Name)
			require.Empty(t, c.KeySpecs, c.Name)
			_, ok := protocol.Lookup(c.Name + "|help")
			require.True(t, ok, c.Name)
		}
	}
}

// TestWritesThatGrowAreDeniedBeyondMaxMemory: a value that a command makes or lengthens takes memory.
func TestWritesThatGrowAreDeniedBeyondMaxMemory(t *testing.T) {
	t.Parallel()
	grow := []string{
		"append", "copy", "decr", "decrby", "getset", "incr", "incrby", "incrbyfloat", "mset", "msetex", "msetnx", "psetex",
		"set", "setex", "setnx", "setrange",
		"linsert", "lmove", "lpush", "lpushx", "lset", "rpoplpush", "rpush", "rpushx",
		"bitfield", "bitop", "setbit", "sort",
		"zadd", "zdiffstore", "zincrby", "zinterstore", "zrangestore", "zunionstore",
		"blmove", "brpoplpush",
		"hincrby", "hincrbyfloat", "hmset", "hset", "hsetnx", "sadd", "sdiffstore", "sinterstore", "sunionstore",
		"lock.acquire", "lock.acquireall", "session.open", "fence.pass",
	}
	for _, c := range allRows() {
		require.Equal(t, slices.Contains(grow, c.Name), c.Has(protocol.FlagDenyOOM), c.Name)
	}
}

// TestWhoseConnectionIsInTheLog: commands by which clients take locks of Redis's own kind, and those that take locks
// away.
func TestWhoseConnectionIsInTheLog(t *testing.T) {
	t.Parallel()
	var from []string
	for _, c := range allRows() {
		if !c.FromConn {
			require.Empty(t, c.FromConnWith, c.Name)
			continue
		}
		require.Contains(t, []protocol.Route{protocol.Write, protocol.Script}, c.Route, c.Name)
		require.False(t, c.Has(protocol.FlagReadOnly), c.Name)
		if from = append(from, c.Name); c.FromConnWith != "" {
			require.Contains(t, c.Usage(), c.FromConnWith, c.Name)
			from = append(from, c.FromConnWith)
		}
	}
	require.Equal(t, []string{
		"del", "eval", "evalsha", "flushall", "flushdb", "getdel", "msetex", "msetnx", "set", "NX", "setnx", "unlink",
	}, from)
}

// optionalKeys counts the keys that a command may lack.
var optionalKeys = map[string]int{"sunsubscribe": 1}

func TestKeySpecsAreInsideTheArity(t *testing.T) {
	t.Parallel()
	for _, c := range allRows() {
		least := max(c.Arity, -c.Arity)
		nameWords := 1 + strings.Count(c.Name, "|")
		for _, s := range c.KeySpecs {
			if s.Hidden {
				continue
			}
			require.GreaterOrEqual(t, s.Index, nameWords, c.Name)
			require.Less(t, s.Index, least+optionalKeys[c.Name], c.Name)
			require.Positive(t, s.Step, c.Name)
			require.True(t, s.Last == 0 || s.Last == -1 || s.Last == -2 || s.Index+s.Last < least, c.Name)
			if c.Arity > 0 {
				require.Zero(t, s.Last, c.Name)
				require.False(t, s.Counted, c.Name)
			}
			if s.Flags == protocol.KeyNotKey {
				continue
			}
			access := s.Flags & (protocol.KeyRW | protocol.KeyRO | protocol.KeyOW | protocol.KeyRM)
			require.NotZero(t, access, c.Name)
			require.Zero(t, access&(access-1), "%s: one of RW, RO, OW, RM", c.Name)
			if c.Has(protocol.FlagReadOnly) {
				require.Equal(t, protocol.KeyRO, access, c.Name)
			}
			require.Equal(t, s.Flags&protocol.KeyVariableFlags != 0, (s.Unless != nil) != (s.While != nil), c.Name)
			require.Equal(t, s.Flags&protocol.KeyVariableFlags != 0, s.Plain != 0, c.Name)
		}
	}
}

func TestGrammarIsWellFormed(t *testing.T) {
	t.Parallel()
	keys := 0
	var check func(c *protocol.Command, a *protocol.Arg)
	check = func(c *protocol.Command, a *protocol.Arg) {
		if a.Type == protocol.ArgKey && a.KeySpec == 0 {
			keys++
		}
		require.NotEmpty(t, a.Name, c.Name)
		require.Equal(t, strings.ToUpper(a.Token), a.Token, c.Name)
		require.False(t, a.MultipleToken && (!a.Multiple || a.Token == ""), c.Name)
		switch a.Type {
		case protocol.ArgOneOf:
			require.GreaterOrEqual(t, len(a.Args), 2, "%s: %s", c.Name, a.Name)
			for i := range a.Args {
				require.False(t, a.Args[i].Optional, "%s: an alternative is never optional", c.Name)
			}
		case protocol.ArgBlock:
			require.NotEmpty(t, a.Args, "%s: %s", c.Name, a.Name)
		case protocol.ArgPureToken:
			require.NotEmpty(t, a.Token, "%s: %s", c.Name, a.Name)
			require.Empty(t, a.Args, c.Name)
		case protocol.ArgString, protocol.ArgInteger, protocol.ArgDouble, protocol.ArgKey,
			protocol.ArgPattern, protocol.ArgUnixTime:
			require.Empty(t, a.Args, "%s: %s", c.Name, a.Name)
		default:
			require.Fail(t, "unknown type", "%s: %s", c.Name, a.Type)
		}
		for i := range a.Args {
			check(c, &a.Args[i])
		}
	}
	for _, c := range allRows() {
		keys = 0
		for i := range c.Args {
			check(c, &c.Args[i])
		}
		specs := 0
		for _, s := range c.KeySpecs {
			if s.Flags != protocol.KeyNotKey && !s.Hidden {
				specs++
			}
		}
		require.Equal(t, specs, keys, "%s: COMMAND DOCS pairs key arguments with key specs", c.Name)
	}
}

// Grammar, arity and key specs agree: three descriptions of the same line.
func TestGrammarAgreesWithArityAndKeys(t *testing.T) {
	t.Parallel()
	g := protocoltest.New(1)
	for _, c := range allRows() {
		if c.Subcommands != nil {
			continue
		}
		least := max(c.Arity, -c.Arity)
		shortest := 1000
		// A row with many options seldom comes without any.
		for n := 0; n < 300 || shortest > least && n < 10_000; n++ {
			line := g.Line(c)
			shortest = min(shortest, len(line))
			got, err := resolve(line)
			require.Nil(t, err, "%q", line)
			require.Same(t, c, got)
			positions, perr := c.KeyPositions(line)
			require.NoError(t, perr, "%q", line)
			require.Equal(t, keysByName(line), positions, "%q", line)
		}
		require.Equal(t, least, shortest, "%s: the shortest line has the arity's length", c.Name)
	}
}

func TestKeyPositionsRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, line, text string }{
		{"get", "get", "ERR Invalid number of arguments specified for command"},
		{"get", "get a b", "ERR Invalid number of arguments specified for command"},
		{"eval", "eval x -1 a", "ERR Invalid arguments specified for command"},
		{"eval", "eval x 2 a", "ERR Invalid arguments specified for command"},
		{"eval", "eval x one a", "ERR Invalid arguments specified for command"},
		{"eval", "eval x 9223372036854775807 a", "ERR Invalid arguments specified for command"},
		{"msetex", "msetex 2 a b c", "ERR Invalid arguments specified for command"},
		{"msetex", "msetex 9223372036854775807 a b", "ERR Invalid arguments specified for command"},
	} {
		row, ok := protocol.Lookup(c.name)
		require.True(t, ok)
		_, err := row.KeyPositions(words(c.line))
		require.EqualError(t, err, c.text, c.line)
	}
}

// keysByName finds the keys of a generated line by how they look.
func keysByName(line [][]byte) []int {
	var positions []int
	for i, w := range line {
		if strings.HasPrefix(string(w), "key:") && !strings.ContainsAny(string(w), "*[") {
			positions = append(positions, i)
		}
	}
	return positions
}

func TestLookup(t *testing.T) {
	t.Parallel()
	for _, c := range allRows() {
		for _, name := range []string{c.Name, strings.ToUpper(c.Name)} {
			got, ok := protocol.Redis().LookupBytes([]byte(name))
			require.True(t, ok, name)
			require.Same(t, c, got)
		}
		got, ok := protocol.Lookup(c.Name)
		require.True(t, ok)
		require.Same(t, c, got)
	}
	for _, name := range []string{"", "gett", "GE", "client|", strings.Repeat("x", 32), strings.Repeat("x", 33)} {
		_, ok := protocol.Redis().LookupBytes([]byte(name))
		require.False(t, ok, name)
	}
	_, ok := protocol.Lookup("GET")
	require.False(t, ok, "Lookup takes folded names alone")
}

func TestFind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ line, command, container string }{
		{"GET k", "get", "get"},
		{"Client ID", "client|id", "client"},
		{"client", "client", "client"},
		{"client nope", "", "client"},
		{"client id|", "", "client"},
		{"client " + strings.Repeat("x", 100), "", "client"},
		{"command", "command", "command"},
		{"command|count", "", ""},
		{"nope", "", ""},
		{"", "", ""},
		{strings.Repeat("x", 100) + " y", "", ""},
	} {
		command, container := protocol.Find(words(c.line))
		require.Equal(t, c.command, name(command), c.line)
		require.Equal(t, c.container, name(container), c.line)
		command, container = protocol.Find(strings.Fields(c.line))
		require.Equal(t, c.command, name(command), c.line)
		require.Equal(t, c.container, name(container), c.line)
	}
}

func name(c *protocol.Command) string {
	if c == nil {
		return ""
	}
	return c.Name
}

func TestLookupDoesNotAllocate(t *testing.T) {
	line := words("CLIENT SetInfo LIB-NAME x")
	wire := []byte("PEXPIRETIME")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, ok := protocol.Redis().LookupBytes(wire); !ok {
			panic("no row")
		}
		if c, _ := protocol.Find(line); c == nil {
			panic("no row")
		}
		if _, err := resolve(line); err != nil {
			panic(err)
		}
	}))
}

// resolve finds the row of a command line, or returns the error of an invalid one.
func resolve(args [][]byte) (*protocol.Command, *protocol.Error) {
	c, container := protocol.Find(args)
	switch {
	case c == nil:
		return nil, protocol.Unknown(args, container)
	case !c.CheckArity(len(args)):
		return nil, protocol.WrongArity(c.Name)
	}
	return c, nil
}

func BenchmarkLookupBytes(b *testing.B) {
	wire := []byte("EVALSHA")
	b.ReportAllocs()
	for b.Loop() {
		protocol.Redis().LookupBytes(wire)
	}
}

// The slots are those that redis-server 7.0.15 gives.
func TestKeySlot(t *testing.T) {
	t.Parallel()
	for key, slot := range map[string]int{
		"": 0, "foo": 12182, "123456789": 12739, "{a}b": 15495, "a": 15495, "x{a}{b}": 15495, "{}a": 10875, "{a": 10276,
		"a}b{": 6027, "{{a}}": 10276,
	} {
		require.Equal(t, slot, protocol.KeySlot(key), "%q", key)
	}
}

// unseen are options behind arguments that may be absent, or be of any number: the grammar does not tell where they
// stand, so that they cannot have a version of the log.
var unseen = []string{
	"bitcount BIT", "bitcount BYTE", "bitpos BIT", "bitpos BYTE", "hello AUTH", "hello SETNAME",
	"hrandfield WITHVALUES", "zinter AGGREGATE", "zinter MAX", "zinter MIN", "zinter SUM", "zinter WITHSCORES",
	"zinterstore AGGREGATE", "zinterstore MAX", "zinterstore MIN", "zinterstore SUM", "zrandmember WITHSCORES",
	"zunion AGGREGATE", "zunion MAX", "zunion MIN", "zunion SUM", "zunion WITHSCORES",
	"zunionstore AGGREGATE", "zunionstore MAX", "zunionstore MIN", "zunionstore SUM",
}

// TestEachOptionIsSeen: the options of a line are those that its row was asked for, whatever the values are.
func TestEachOptionIsSeen(t *testing.T) {
	g := protocoltest.New(1)
	missed := map[string]bool{}
	for _, c := range allRows() {
		for range 200 {
			words := g.Line(c)[1+strings.Count(c.Name, "|"):]
			seen := map[int]bool{}
			protocol.EachOption(c, words, func(at int, option *protocol.Arg, values [][]byte) bool {
				require.Equal(t, option.Token, strings.ToUpper(string(words[at])))
				for i := range 1 + len(values) {
					seen[at+i] = true
				}
				return true
			})
			for at, word := range words {
				if token := strings.ToUpper(string(word)); !seen[at] && hasToken(c.Args, token) {
					missed[c.Name+" "+token] = true
				}
			}
		}
	}
	require.Equal(t, unseen, slices.Sorted(maps.Keys(missed)))
}

// TestVersionsOfOptions: an argument that came with a version of the log is known by a token that is seen.
func TestVersionsOfOptions(t *testing.T) {
	var check func(c *protocol.Command, args []protocol.Arg, versioned bool)
	check = func(c *protocol.Command, args []protocol.Arg, versioned bool) {
		for _, a := range args {
			require.LessOrEqual(t, a.LogVersion, byte(protocol.EntryVersion), "%s of %s", a.Name, c.Name)
			versioned := versioned || a.LogVersion > 0
			require.False(t, versioned && slices.Contains(unseen, c.Name+" "+a.Token), "%s of %s", a.Token, c.Name)
			require.False(t, a.LogVersion > 0 && a.Token == "" && len(a.Args) == 0, "%s of %s", a.Name, c.Name)
			check(c, a.Args, versioned)
		}
	}
	for _, c := range allRows() {
		require.LessOrEqual(t, c.LogVersion, byte(protocol.EntryVersion), c.Name)
		check(c, c.Args, false)
	}
}

func hasToken(args []protocol.Arg, token string) bool {
	return slices.ContainsFunc(args, func(a protocol.Arg) bool { return a.Token == token || hasToken(a.Args, token) })
}
