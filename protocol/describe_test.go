package protocol_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// show writes a reply on one line, with the kinds that RESP3 tells apart: +simple,
// -error, "bulk", :1, [array], ~{set, sorted}, %{map}, null.
func show(v protocol.Value) string {
	var elems []string
	for _, e := range v.Elems {
		elems = append(elems, show(e))
	}
	switch v.Kind {
	case protocol.KindNull, protocol.KindNullArray:
		return "null"
	case protocol.KindSimple:
		return "+" + v.Str
	case protocol.KindError:
		return "-" + v.Str
	case protocol.KindBulk:
		return fmt.Sprintf("%q", v.Str)
	case protocol.KindInteger:
		return fmt.Sprintf(":%d", v.Num)
	case protocol.KindArray:
		return "[" + strings.Join(elems, " ") + "]"
	case protocol.KindSet:
		slices.Sort(elems)
		return "~{" + strings.Join(elems, " ") + "}"
	case protocol.KindMap:
		return "%{" + strings.Join(elems, " ") + "}"
	}
	return fmt.Sprintf("kind %d", v.Kind)
}

// conversations are command lines and what redis-server 7.0.15 answers; the live
// test asks one. A line that begins with ! is answered otherwise on purpose.
var conversations = []struct{ line, reply string }{
	{"command info nope", `[null]`},
	{
		"command info Get nope client|ID",
		`[["get" :2 ~{+fast +readonly} :1 :1 :1 ~{+@fast +@read +@string} ~{} ` +
			`~{%{"flags" ~{+RO +access} "begin_search" %{"type" "index" "spec" %{"index" :1}} ` +
			`"find_keys" %{"type" "range" "spec" %{"lastkey" :0 "keystep" :1 "limit" :0}}}} ~{}] null ` +
			`["client|id" :2 ~{+loading +noscript +stale} :0 :0 :0 ~{+@connection +@slow} ~{} ~{} ~{}]]`,
	},
	{"command docs nope", `%{}`},
	{"command count x", `-ERR wrong number of arguments for 'command|count' command`},
	{"command list filterby pattern CLIENT|in*", `["client|info"]`},
	{"command list filterby pattern getd*", `["getdel"]`},
	{"command list filterby aclcat nope", `[]`},
	{"command list FILTERBY aclcat @connection", `[]`},
	{"command list filterby module json", `[]`},
	{
		"!command list filterby module lock",
		`["fence.get" "fence.pass" "fence.raise" "lock.acquire" "lock.acquireall" "lock.break" "lock.cancel" "lock.check" "lock.downgrade" "lock.history" "lock.info" "lock.list" "lock.release" "lock.releaseall" "lock.renew" "session.attach" "session.close" "session.info" "session.keepalive" "session.list" "session.open"]`,
	},
	{"command list filterby foo x", `-ERR syntax error`},
	{"command list filterby pattern", `-ERR syntax error`},
	{"command list foo", `-ERR syntax error`},
	{"command getkeys get k", `["k"]`},
	{"command getkeys GET k", `["k"]`},
	{"command getkeys mset a b c d", `["a" "c"]`},
	{"command getkeys mset a b c", `["a" "c"]`},
	{"command getkeys del a b c", `["a" "b" "c"]`},
	{"command getkeys rename a b", `["a" "b"]`},
	{"command getkeys object encoding a", `["a"]`},
	{"command getkeys eval x 2 a b c", `["a" "b"]`},
	{"command getkeys eval x 0", `[]`},
	{"command getkeys eval x -1 a", `[]`},
	{"command getkeys eval x 9 a", `[]`},
	{"command getkeys nope a", `-ERR Invalid command specified`},
	{"command getkeys object nope", `-ERR Invalid command specified`},
	{"command getkeys config|get x", `-ERR Invalid command specified`},
	{"command getkeys ping x", `-ERR The command has no key arguments`},
	{"command getkeys object help", `-ERR The command has no key arguments`},
	{"command getkeys get a b", `-ERR Invalid number of arguments specified for command`},
	{"command getkeys mset a", `-ERR Invalid number of arguments specified for command`},
	{"command getkeysandflags set a b", `[["a" ~{+OW +update}]]`},
	{"command getkeysandflags set a b get", `[["a" ~{+RW +access +update}]]`},
	{"command getkeysandflags set a get", `[["a" ~{+OW +update}]]`},
	{"command getkeysandflags bitfield a get u4 0", `[["a" ~{+RO +access}]]`},
	{"command getkeysandflags bitfield a GET u4 0 overflow fail get set 0", `[["a" ~{+RO +access}]]`},
	{"command getkeysandflags bitfield a set u4 0 1", `[["a" ~{+RW +access +update}]]`},
	{"command getkeysandflags bitfield a get u4 0 incrby u4 0 1", `[["a" ~{+RW +access +update}]]`},
	{"command getkeysandflags bitfield a get u4", `[["a" ~{+RW +access +update}]]`},
	{"command getkeysandflags bitfield a overflow", `[["a" ~{+RW +access +update}]]`},
	{"command getkeysandflags bitfield a x", `[["a" ~{+RW +access +update}]]`},
	{"command getkeysandflags mset a b c d", `[["a" ~{+OW +update}] ["c" ~{+OW +update}]]`},
	{"command getkeysandflags rename a b", `[["a" ~{+RW +access +delete}] ["b" ~{+OW +update}]]`},
	{"command getkeysandflags evalsha x 1 a", `[["a" ~{+RW +access +update}]]`},
	{"client", `-ERR wrong number of arguments for 'client' command`},
	{"client setname", `-ERR wrong number of arguments for 'client|setname' command`},
	{"client nope x", `-ERR unknown subcommand 'nope'. Try CLIENT HELP.`},
	{"Object foo\r\nbar x", `-ERR unknown subcommand 'foo  bar'. Try OBJECT HELP.`},
	{"object help x", `-ERR wrong number of arguments for 'object|help' command`},
	{"GET", `-ERR wrong number of arguments for 'get' command`},
	{"set a", `-ERR wrong number of arguments for 'set' command`},
	{"foo", `-ERR unknown command 'foo', with args beginning with: `},
	{"foo a b", `-ERR unknown command 'foo', with args beginning with: 'a' 'b' `},
	{"config|get x", `-ERR unknown command 'config|get', with args beginning with: 'x' `},
	{"foo\rbar x\ny \x00", `-ERR unknown command 'foo bar', with args beginning with: 'x y' '' `},
	{
		strings.Repeat("f", 200) + " a " + strings.Repeat("z", 200) + " b",
		`-ERR unknown command '` + strings.Repeat("f", 128) + `', with args beginning with: 'a' '` +
			strings.Repeat("z", 124) + `' `,
	},
	{
		"foo " + strings.Repeat("z", 100) + " " + strings.Repeat("y", 100) + " b",
		`-ERR unknown command 'foo', with args beginning with: '` +
			strings.Repeat("z", 100) + `' '` + strings.Repeat("y", 25) + `' `,
	},
	{"!command getkeys ping", `-ERR The command has no key arguments`}, // arity of Redis 7.2 and later
	{"!command getkeys eval x 1x a", `[]`},                             // Redis finds a key, but EVAL refuses the line
	{"!command getkeys msetex 2 a b c d nx", `["a" "c"]`},
	{"!command getkeys msetex 3 a b c d nx", `-ERR Invalid arguments specified for command`},
	{"!command getkeysandflags set a b ifeq x", `[["a" ~{+RW +access +update}]]`},
	{"!command getkeysandflags msetex 1 a b", `[["a" ~{+OW +update}]]`},
	{"!client maint_notifications on", `-ERR unknown subcommand 'maint_notifications'. Try CLIENT HELP.`},
}

// answer answers a line as the connection's layer does, as far as the table can.
func answer(line [][]byte) protocol.Value {
	c, err := resolve(line)
	if err != nil {
		return err.Value()
	}
	switch c.Name {
	case "command|info":
		return protocol.Redis().DescribeCommands(line[2:])
	case "command|docs":
		return protocol.Redis().DocumentCommands(line[2:])
	case "command|list":
		return protocol.Redis().ListCommands(line[2:])
	case "command|getkeys":
		return protocol.GetKeys(line[2:], false)
	case "command|getkeysandflags":
		return protocol.GetKeys(line[2:], true)
	}
	return protocol.Err("no answer to " + c.Name)
}

// split splits at single spaces, so that a word may hold line breaks.
func split(line string) [][]byte {
	return protocoltest.Args(strings.Split(strings.TrimPrefix(line, "!"), " "))
}

func TestConversations(t *testing.T) {
	t.Parallel()
	for _, c := range conversations {
		require.Equal(t, c.reply, show(answer(split(c.line))), c.line)
	}
}

func TestResolveNothing(t *testing.T) {
	t.Parallel()
	_, err := resolve(nil)
	require.EqualError(t, err, "ERR unknown command ''")
}

func TestDescribeAndDocumentAll(t *testing.T) {
	t.Parallel()
	infos := protocol.Redis().DescribeCommands(nil)
	docs := protocol.Redis().DocumentCommands(nil)
	require.Len(t, infos.Elems, len(protocol.Commands()))
	require.Len(t, docs.Elems, 2*len(protocol.Commands()))
	require.Equal(t, protocol.Integer(int64(len(protocol.Commands()))), protocol.Redis().CountCommands())
	require.Len(t, protocol.Redis().ListCommands(nil).Elems, len(allRows()))
	for i, c := range protocol.Commands() {
		require.Equal(t, c.Name, infos.Elems[i].Elems[0].Str)
		require.Equal(t, c.Name, docs.Elems[2*i].Str)
	}
}

func TestACLCategories(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"get":          "read string fast",
		"set":          "write string slow",
		"keys":         "keyspace read slow dangerous",
		"flushall":     "keyspace write slow dangerous",
		"client":       "slow",
		"client|kill":  "admin slow dangerous connection",
		"eval_ro":      "slow scripting",
		"wait":         "slow connection",
		"time":         "fast",
		"role":         "admin fast dangerous",
		"lock.acquire": "write fast blocking lock",
		"session.list": "read slow lock",
	} {
		c, ok := protocol.Lookup(name)
		require.True(t, ok, name)
		require.Equal(t, want, strings.Join(c.ACLCategories(), " "), name)
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	c, _ := protocol.Lookup("script")
	var lines []string
	for _, e := range c.Help().Elems {
		require.Equal(t, protocol.KindSimple, e.Kind)
		lines = append(lines, e.Str)
	}
	require.Equal(t, "SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:", lines[0])
	require.Equal(t, []string{"HELP", "    Print this help."}, lines[len(lines)-2:])
	require.Contains(t, lines, "FLUSH [ASYNC | SYNC]")
	require.Contains(t, lines, "EXISTS sha1 [sha1 ...]")
	// A container that is a command by itself says so.
	c, _ = protocol.Lookup("command")
	require.Equal(t, "+(no subcommand)", show(c.Help().Elems[1]))
	// Long sentences are wrapped.
	long := &protocol.Command{Name: "x", Arity: -2, Subcommands: []protocol.Command{
		{Name: "x|y", Summary: strings.TrimSpace(strings.Repeat("Words ", 30))},
	}}
	for _, e := range long.Help().Elems[2:] {
		require.LessOrEqual(t, len(e.Str), 78)
		require.True(t, strings.HasPrefix(e.Str, "    Words"))
	}
	require.Len(t, long.Help().Elems, 5)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"get":         "GET key",
		"ping":        "PING [message]",
		"mset":        "MSET key value [key value ...]",
		"eval":        "EVAL script numkeys [key [key ...]] [arg [arg ...]]",
		"expire":      "EXPIRE key seconds [NX | XX | GT | LT]",
		"hello":       "HELLO [protover [AUTH username password] [SETNAME clientname]]",
		"copy":        "COPY source destination [DB destination-db] [REPLACE]",
		"client":      "CLIENT subcommand [argument ...]",
		"command":     "COMMAND",
		"client|id":   "CLIENT ID",
		"randomkey":   "RANDOMKEY",
		"script|kill": "SCRIPT KILL",
		"client|list": "CLIENT LIST [TYPE <NORMAL | MASTER | REPLICA | PUBSUB> | " +
			"ID client-id [client-id ...]]",
		"lock.acquire": "LOCK.ACQUIRE key owner <PX milliseconds | EX seconds | SESSION session-id> [SHARED | LIMIT limit " +
			"[PERMITS permits]] " +
			"[WAIT milliseconds [NOTIFY]] [DELAY delay-milliseconds] [REENTRANT [CALL call-id]] [NOTE note]",
		"lock.history": "LOCK.HISTORY [MATCH pattern] [OWNER owner] [NATIVE | STOCK] [DB database] [CURSOR cursor] " +
			"[COUNT count]",
		"lock.list": "LOCK.LIST [MATCH pattern] [OWNER owner] [SESSION session-id] [HELD | WAITING] [DB database] " +
			"[CURSOR cursor] [COUNT count]",
		"command|list": "COMMAND LIST [FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]",
	} {
		c, ok := protocol.Lookup(name)
		require.True(t, ok, name)
		require.Equal(t, want, c.Usage())
	}
	c := &protocol.Command{Name: "client|tracking", Args: []protocol.Arg{
		{Name: "prefix", Type: protocol.ArgString, Token: "PREFIX", Multiple: true, MultipleToken: true, Optional: true},
	}}
	require.Equal(t, "CLIENT TRACKING [PREFIX prefix [PREFIX prefix ...]]", c.Usage())
	a := protocol.Arg{Name: "a", Type: protocol.ArgPureToken, Token: "A"}
	b := protocol.Arg{Name: "b", Type: protocol.ArgString, Token: "B"}
	c = &protocol.Command{Name: "x", Args: []protocol.Arg{
		{Name: "options", Type: protocol.ArgOneOf, Multiple: true, Optional: true, Args: []protocol.Arg{a, b}},
	}}
	require.Equal(t, "X [<A | B b> [<...> ...]]", c.Usage())
}

func TestReference(t *testing.T) {
	t.Parallel()
	text := protocol.Reference()
	for _, c := range allRows() {
		container := c.Subcommands != nil && !c.CheckArity(1)
		row := "| `" + strings.ReplaceAll(c.Usage(), "|", `\|`) + "` | " + c.Summary + " | " + c.Since + " |\n"
		require.Equal(t, !container, strings.Contains(text, row), c.Name)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "|") {
			cells := strings.Count(line, "|") - strings.Count(line, `\|`)
			require.Equal(t, 4, cells, line)
		}
	}
}

// TestAskedForTheSameAgain: a row that is asked for ten thousand times is described once.
func TestAskedForTheSameAgain(t *testing.T) {
	names := slices.Repeat([][]byte{[]byte("set")}, 10_000)
	for _, f := range []func([][]byte) protocol.Value{
		protocol.Redis().DescribeCommands,
		protocol.Redis().DocumentCommands,
	} {
		all, one := f(names), f(names[:1])
		require.Len(t, all.Elems, 10_000*len(one.Elems))
		require.Equal(t, show(one), show(protocol.Value{Kind: one.Kind, Elems: all.Elems[len(all.Elems)-len(one.Elems):]}))
		require.Less(t, testing.AllocsPerRun(3, func() { f(names) }), 1000.0)
	}
}

// A Reader takes the commands out of what has arrived, and says when the rest is not there yet.
func ExampleReader() {
	arrived := []byte("*3\r\n$3\r\nSET\r\n$4\r\nlock\r\n$5\r\ntoken\r\nPING\r\n*2\r\n$3\r\nGET")
	r := protocol.NewReader(protocol.DefaultLimits())
	for {
		words, n, err := r.Next(arrived)
		arrived = arrived[n:]
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%q\n", words)
	}
	// Output:
	// ["SET" "lock" "token"]
	// ["PING"]
	// incomplete request
}

// Every reply is a Value, which becomes RESP2 or RESP3 in one place.
func ExampleValue() {
	reply := protocol.Array(protocol.Integer(1), protocol.Bulk("token"), protocol.Null)
	for _, version := range []int{protocol.RESP2, protocol.RESP3} {
		fmt.Printf("%q\n", reply.AppendTo(nil, version))
	}
	// Output:
	// "*3\r\n:1\r\n$5\r\ntoken\r\n$-1\r\n"
	// "*3\r\n:1\r\n$5\r\ntoken\r\n_\r\n"
}

// The row of a command has the route, the number of words, and the places of the keys.
func ExampleFind() {
	line := strings.Fields("pexpire lock 30000 NX")
	command, _ := protocol.Find(line)
	fmt.Println(command.Name, command.CheckArity(len(line)), command.Route == protocol.Write)
	fmt.Println(command.Usage())
	// Output:
	// pexpire true true
	// PEXPIRE key milliseconds [NX | XX | GT | LT]
}

// The text of an error says whether the command may have been applied.
func ExampleOutcomeOf() {
	fmt.Println(protocol.OutcomeOf("CLUSTERDOWN no leader") == protocol.OutcomeNone)
	fmt.Println(protocol.OutcomeOf("UNCERTAIN no majority has answered") == protocol.OutcomeUnknown)
	// Output:
	// true
	// true
}

func ExampleAppendQuoted() {
	fmt.Printf("%s\n", protocol.AppendQuoted(nil, "plain '~ \x00\x1f\x7f\xff \\ \" \n\r\t\a\b"))
	// Output: "plain '~ \x00\x1f\x7f\xff \\ \" \n\r\t\a\b"
}
