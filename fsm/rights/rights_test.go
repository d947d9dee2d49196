package rights

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

func mustParse(t testing.TB, text string) *Rights {
	t.Helper()
	r, err := Parse(text)
	require.NoError(t, err, text)
	return r
}

// verdict describes the result of a check, with the refused word.
func verdict(t testing.TB, r *Rights, line string) string {
	t.Helper()
	words := strings.Fields(line)
	command, _ := protocol.FindIn(protocol.Redis(), words)
	require.NotNil(t, command, line)
	switch denial, at := Check(r, command, words, &Budget{Steps: 1000}); denial {
	case Allowed:
		return "yes"
	case DeniedCommand:
		return "command"
	case DeniedKey:
		return "key " + words[at]
	default:
		return "channel " + words[at]
	}
}

func TestCheck(t *testing.T) {
	for _, tc := range []struct{ rules, line, want string }{
		{"", "get a", "command"},
		{"", "auth a", "yes"}, // otherwise nobody could authenticate as another user
		{"allcommands", "get a", "key a"},
		{"allcommands allkeys", "get a", "yes"},
		{"allcommands allkeys", "publish c m", "channel c"},
		{"+@all ~orders:*", "get orders:1", "yes"},
		{"+@all ~orders:*", "mget orders:1 invoices:1", "key invoices:1"},
		{"+@all ~orders:*", "get orders:", "yes"},
		{"+@all ~[ab]:1", "get b:1", "yes"},
		{"+@all %R~a", "get a", "yes"},
		{"+@all %R~a", "set a 1", "key a"},
		{"+@all %W~a", "set a 1", "yes"},
		{"+@all %W~a", "set a 1 GET", "key a"},
		{"+@all %R~a %W~b", "copy a b", "yes"},
		{"+@all %R~a %W~b", "copy b a", "key b"},
		{"+@all %R~a %W~a", "set a 1 GET", "yes"},
		{"+@all %R~a %W~*", "set a 1 GET", "key a"}, // a single pattern must grant both
		{"+@all ~a -@dangerous", "flushall", "command"},
		{"+@all ~a -@dangerous", "lock.break a", "command"},
		{"+@all ~a -@dangerous", "raft.status", "command"},
		{"+@all ~a -@dangerous", "lock.acquire a me PX 5", "yes"},
		{"+@all ~a -@dangerous", "lock.acquire b me PX 5", "key b"},
		{"+@all ~a", "lock.acquireall 2 a b me PX 5", "key b"},
		{"+@lock ~a", "lock.info a", "yes"},
		{"+@lock ~a", "get a", "command"},
		{"+config|get", "config get x", "yes"},
		{"+config|get", "config set x y", "command"},
		{"+config -config|set", "config get x", "yes"},
		{"+config -config|set", "config set x y", "command"},
		{"+select|1 +select|2", "select 2", "yes"},
		{"+select|1", "select 3", "command"},
		{"+select|1 -select", "select 1", "command"},
		{"+@all &news", "subscribe news", "yes"},
		{"+@all &news", "subscribe news other", "channel other"},
		{"+@all &news*", "psubscribe news*", "yes"},
		{"+@all &news*", "psubscribe news1", "channel news1"}, // patterns are compared literally
		{"+@all &news", "unsubscribe other", "yes"},
		{"+@all &a", "spublish b m", "channel b"},
		{"+get ~a (+set ~b)", "get a", "yes"},
		{"+get ~a (+set ~b)", "set b 1", "yes"},
		{"+get ~a (+set ~b)", "set a 1", "key a"},
		{"+get ~a (+set ~b)", "get b", "key b"},
		{"+get ~a (+set ~b)", "del a", "command"},
		{"+get ~a (+set ~b) clearselectors", "set b 1", "command"},
		{"+eval ~a", "eval x 2 a b", "key b"},
		{"+sort ~a", "sort a STORE b", "key b"},
	} {
		require.Equal(t, tc.want, verdict(t, mustParse(t, tc.rules), tc.line), "%s: %s", tc.rules, tc.line)
	}
}

func TestRefusedRules(t *testing.T) {
	for rule, want := range map[string]error{
		"nonsense": ErrRuleSyntax, "+get|": ErrRuleSyntax, "%X~a": ErrRuleSyntax, "%RR~a": ErrRuleSyntax,
		"%~a": ErrRuleSyntax, "~a b": ErrRuleSyntax,
		"&a b": ErrRuleSyntax, "": ErrRuleSyntax,
		"+nope": ErrUnknown, "-nope": ErrUnknown, "+@nope": ErrUnknown, "+config|nope": ErrUnknown, "-select|1": ErrUnknown,
		"+config|get|x": errNested, "(nonsense)": ErrRuleSyntax, "(~a))": ErrRuleSyntax, "(~* ~a)": errAfterAllKeys,
	} {
		require.ErrorIs(t, new(Rights).Apply(rule), want, rule)
	}
	require.ErrorIs(t, mustParse(t, "~*").Apply("~a"), errAfterAllKeys)
	require.ErrorIs(t, mustParse(t, "&*").Apply("&a"), errAfterAllChannels)
	_, err := Parse("(+get ~a")
	require.ErrorIs(t, err, ErrParenthesis)
}

// TestStringMeansTheSame: parsing the output of String yields equivalent rights.
func TestStringMeansTheSame(t *testing.T) {
	for rules, want := range map[string]string{
		"":                            "resetchannels -@all",
		"+@all ~* &*":                 "~* &* +@all",
		"+@all -@dangerous ~a &b":     "~a resetchannels &b +@all -@dangerous",
		"+get +set -get %rw~a %R~b":   "~a %R~b resetchannels -@all +set -get",
		"+config|get +config|set":     "resetchannels -@all +config|get +config|set",
		"+config|get +config":         "resetchannels -@all +config",
		"+GET (~a +SET)":              "resetchannels -@all +get (~a resetchannels -@all +set)",
		"%R~a %W~a":                   "~a resetchannels -@all",
		"+get +@all":                  "resetchannels +@all",
		"+nope +get":                  "resetchannels -@all +get", // as parsed by an earlier release's node
		"\u00a0 ~a\u00a0b \t allkeys": "",
	} {
		r, err := Parse(rules)
		if want == "" {
			require.ErrorIs(t, err, ErrRuleSyntax) // only ASCII blanks separate rules
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, r.String())
		require.Equal(t, want, mustParse(t, want).String())
	}
}

func TestEverything(t *testing.T) {
	for rules, want := range map[string]bool{
		"+@all ~* &*": true, "+@all allkeys": false, "+@all &*": false, "~* &*": false, "+@all ~* &* -get": false,
		"+@all ~* &* -get +get": false,
		"-@all (+@all ~* &*)":   true,
	} {
		require.Equal(t, want, mustParse(t, rules).Everything(), rules)
	}
}

// TestWorkIsBounded: a check is charged to its budget, and without budget it refuses.
func TestWorkIsBounded(t *testing.T) {
	r := mustParse(t, "+@all ~*a*a*a*b ~x*")
	command, _ := protocol.Lookup("get")
	b := Budget{Steps: 1000}
	denial, _ := Check(r, command, []string{"get", strings.Repeat("a", 5000)}, &b)
	require.Equal(t, DeniedKey, denial)
	require.Negative(t, b.Steps)
	denial, _ = Check(r, command, []string{"get", "x"}, &b)
	require.Equal(t, DeniedKey, denial)
	b = Budget{Steps: 1000}
	denial, _ = Check(r, command, []string{"get", "xyz"}, &b)
	require.Equal(t, Allowed, denial)
	require.Less(t, b.Steps, int64(1000))
	denial, _ = Check(mustParse(t, "+@all ~x*"), command, []string{"get", "xyz"}, &Budget{})
	require.Equal(t, DeniedKey, denial)
}

// TestAllKeys: SORT with BY or GET needs the right to read all keys.
func TestAllKeys(t *testing.T) {
	command, _ := protocol.Lookup("sort")
	for rules, want := range map[string]bool{
		"+sort ~*": true, "+sort %R~* ~a": true, "+sort %R~*": true, "+sort ~a": false, "+sort %W~* ~a": false,
		"~* (+sort ~a)":       false,
		"+sort ~a (~* +sort)": true,
	} {
		require.Equal(t, want, allKeys(mustParse(t, rules), command, []string{"sort", "a"}, &Budget{Steps: 100}), rules)
	}
}

// TestCategoriesOfTheLog: the categories of commands in scripts, and the words that are keys and channels, are part of
// the meaning of log entries (see the package comment). Commands of the newest version are fixed from the next version
// on.
func TestCategoriesOfTheLog(t *testing.T) {
	var all strings.Builder
	n := 0
	for c := range protocol.Redis().All() {
		if c.Route != protocol.Local && !c.Has(protocol.FlagNoScript) && c.LogVersion < protocol.EntryVersion {
			fmt.Fprint(&all, c.Name, c.ACLCategories())
			for _, k := range c.KeySpecs {
				fmt.Fprint(&all, k.Index, k.Last, k.Step, k.Counted, k.Hidden, k.Option, k.Flags, k.Plain, k.Unless, k.While)
			}
			first, last, pattern := c.Channels()
			fmt.Fprintln(&all, first, last, pattern)
			n++
		}
	}
	require.Equal(t, categoriesOfTheLog, fmt.Sprintf("%d commands, %x", n, sha256.Sum256([]byte(all.String())))[:30])
}

const categoriesOfTheLog = "175 commands, 8aeaf565a4be8b02"

// FuzzParse: parsing never panics, and String reproduces accepted rules.
func FuzzParse(f *testing.F) {
	commands := []*protocol.Command{}
	for c := range protocol.Redis().All() {
		if c.Arity == 2 || c.Arity == -2 {
			commands = append(commands, c)
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		var rules []string
		for range 6 {
			rules = append(rules, randomRule(r, commands))
		}
		f.Add(strings.Join(rules, " "))
	}
	f.Add("((")
	f.Add("() (( )) )(")
	f.Fuzz(func(t *testing.T, text string) {
		first, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(first.String())
		require.NoError(t, err)
		require.Equal(t, first.String(), again.String())
		for _, c := range commands {
			for _, key := range []string{"a", "b:1"} {
				words := []string{c.Name, key, key}
				one, atOne := Check(first, c, words, &Budget{Steps: 1 << 20})
				two, atTwo := Check(again, c, words, &Budget{Steps: 1 << 20})
				require.Equal(t, one, two, "%s %s", c.Name, key)
				require.Equal(t, atOne, atTwo)
			}
		}
	})
}
